#include "src/verbs/chain.h"

#include "src/base/clock.h"
#include "src/gpu/gpu_needs.h"
#include "src/io/disk_folder.h"
#include "src/verbs/machine_for.h"
#include "src/verbs/model_for.h"
#include "src/verbs/open_device.h"
#include "src/verbs/policy_for.h"
#include "src/verbs/prediction_for.h"  // OverlapOf
#include "src/verbs/sampling_for.h"
#include "src/verbs/tokenizer_warning.h"

namespace spillway {
namespace {

bool ReadsText(Verb verb) {
  return verb == Verb::kGenerate || verb == Verb::kScore || verb == Verb::kCalibrate;
}

}  // namespace

int RunChain(const Config& flags, OpenStages open) {
  const double begin_s = NowSeconds();
  const std::unique_ptr<Device> device = OpenDevice(flags);
  const OpenedModel model = ModelFor(flags);
  const std::unique_ptr<Stages> verb = open({flags, model, begin_s});
  try {
    const Config config = verb->Settle(WithModelSampling(flags, model));
    Machine machine = MachineFor(config, model, *device);
    const Setting setting = {config, model, machine, *device, NeedsFor(machine, *device)};
    const Workload work = verb->ReadWork(setting);
    if (const auto profile = verb->MakeProfile(setting, work)) TakeRates(*profile, machine);
    const Policy policy = verb->ChoosePolicy(setting, work);
    const Plan plan = verb->PlanFor(setting, work, policy);
    if (ReadsText(config.verb)) WarnOfOtherTokenizer(model);  // a refusal is one line
    const Schedule schedule = MakeSchedule(plan, OverlapOf(config));
    const std::optional<Trace> trace = verb->Run(setting, {work, plan, schedule});
    return verb->Report(setting, {work, plan, schedule}, trace);
  } catch (const Error& error) {
    throw verb->Explain(error);
  }
}

Policy Stages::ChoosePolicy(const Setting& setting, const Workload& work) {
  return PolicyFor(setting.config, setting.model, setting.machine, work, setting.needs);
}

Plan Stages::PlanFor(const Setting& setting, const Workload& work, const Policy& policy) {
  try {
    Plan plan = MakePlan(setting.model, setting.machine, work, policy, setting.needs);
    RefuseWhatGpuLacks(plan);
    return plan;
  } catch (const Error& error) {
    // No folder to use looks like a disk without room.
    if (error.code() == ErrorCode::kDiskSpace && setting.machine.disk_cap_is_free_space)
      DiskFolder(OffloadDisk(setting.config)).FreeBytes();
    throw;
  }
}

std::optional<Trace> Stages::Run(const Setting& /*setting*/, const PlannedRun& /*planned*/) {
  return std::nullopt;
}

}  // namespace spillway
