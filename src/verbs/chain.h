// The chain that all verbs go through which plan or run: Config -> Model, Machine, Workload ->
// Policy -> Plan -> Schedule -> Trace -> Report. RunChain has the order of the stages; a verb says
// what its own are. Thread rule: the main thread.
#pragma once

#include <memory>
#include <optional>

#include "spillway/error.h"
#include "spillway/machine.h"
#include "spillway/plan.h"
#include "spillway/policy.h"
#include "spillway/schedule.h"
#include "spillway/trace.h"
#include "spillway/workload.h"
#include "src/config/config.h"
#include "src/device/device.h"
#include "src/store/open_model.h"

namespace spillway {

// Input of a verb's constructor. Outlives its stages.
struct Opened {
  const Config& flags;
  const OpenedModel& model;
  double begin_s;  // NowSeconds before anything was opened
};

// Input of a verb's planning.
struct Setting {
  const Config& config;  // the flags, settled
  const OpenedModel& model;
  const Machine& machine;
  Device& device;
  KernelNeeds needs;
};

// Result of a verb's planning.
struct PlannedRun {
  const Workload& work;
  const Plan& plan;
  const Schedule& schedule;
};

// The stages of one verb, each called once by RunChain, in this order. A verb that goes only a part
// of the way leaves out Run. Constructed with what the verb writes, which is checked before
// anything is read.
class Stages {
 public:
  virtual ~Stages() = default;

  // The flags, with what an interrupted run or the verb itself decides where they are silent.
  virtual Config Settle(const Config& flags) { return flags; }

  virtual Workload ReadWork(const Setting& setting) = 0;

  // A profile of the machine, where its rates are not known and the work is worth measuring them.
  virtual std::optional<Machine> MakeProfile(const Setting& /*setting*/, const Workload& /*work*/) {
    return std::nullopt;
  }

  // Chooses as policy_for.h says.
  virtual Policy ChoosePolicy(const Setting& setting, const Workload& work);

  // Throws: what MakePlan and RefuseWhatGpuLacks throw.
  virtual Plan PlanFor(const Setting& setting, const Workload& work, const Policy& policy);

  // nullopt: nothing was run.
  virtual std::optional<Trace> Run(const Setting& setting, const PlannedRun& planned);

  // Writes what the verb is asked for; returns the exit status.
  virtual int Report(const Setting& setting, const PlannedRun& planned,
                     const std::optional<Trace>& trace) = 0;

  // The error that ends the verb after one of any stage above: that one, and what is to be done
  // next.
  virtual Error Explain(const Error& error) { return error; }
};

using OpenStages = std::unique_ptr<Stages> (*)(const Opened& opened);

template <typename VerbStages>
std::unique_ptr<Stages> MakeStages(const Opened& opened) {
  return std::make_unique<VerbStages>(opened);
}

// Returns the exit status. Throws: Error, of any stage.
int RunChain(const Config& flags, OpenStages open);

}  // namespace spillway
