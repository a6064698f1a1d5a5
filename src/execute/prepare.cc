#include "src/execute/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "kernels/isa.h"
#include "kernels/thread_pool.h"
#include "policies/default_policy.h"
#include "spillway/error.h"
#include "src/io/disk_folder.h"
#include "src/machine/probe.h"
#include "src/model/make_store.h"
#include "src/size_text.h"
#include "src/store/store.h"

namespace spillway {
namespace {

// 90 % of what is free; nothing where the folder cannot be used and was not asked for.
int64_t FreeDiskBytes(const Config& config) {
  try {
    return DiskFolder(OffloadFolder(config)).FreeBytes() / 10 * 9;
  } catch (const Error&) {
    if (!config.offload_dir.empty()) throw;
    return 0;
  }
}

// A store that is there already, named by --model or made by an earlier run, has its place on disk.
int64_t StoredBytes(const Config& config, const OpenedModel& model) {
  std::filesystem::path store = model.store;
  if (store.empty()) {
    const std::string key = ContentKey(config, model);
    store = StorePath(OffloadFolder(config), key);
    if (ProbeStore(store, key) != StoreState::kReady) return 0;
  }
  std::error_code error;
  const auto bytes = std::filesystem::file_size(store / kStoreWeightsName, error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

PerTier<double> ShareOf(double gpu_percent, double cpu_percent) {
  PerTier<double> frac;
  frac[Tier::kGpu] = gpu_percent / 100.0;
  frac[Tier::kCpu] = cpu_percent / 100.0;
  frac[Tier::kDisk] = (100.0 - gpu_percent - cpu_percent) / 100.0;
  return frac;
}

// What a run may take of a GPU.
int64_t GpuCap(const Config& config, const DeviceMemory& memory) {
  const int64_t wanted =
      std::min(config.gpu_memory_bytes.value_or(memory.total_bytes / 10 * 9), memory.total_bytes);
  if (wanted <= memory.used_bytes) {
    throw Error(ErrorCode::kGpuMemory,
                fmt::format("{} of GPU memory are asked for, and {} are in use before the run (the "
                            "CUDA context's included); give a larger --gpu-memory or close other "
                            "programs on the GPU",
                            SizeText(wanted), SizeText(memory.used_bytes)));
  }
  return wanted - memory.used_bytes;
}

constexpr double kDefaultKvFrac = 0.2;

KvPolicy KvPolicyGivenBy(const Config& config) {
  KvPolicy kv;
  kv.kind = config.kv_policy;
  kv.budget = {config.kv_budget.value_or(TokenAmount{kDefaultKvFrac, 0}), config.kv_heavy,
               config.kv_recent};
  kv.num_sinks = config.kv_sinks.value_or(0);
  return kv;
}

GivenPolicy PolicyGivenBy(const Config& config, const Machine& machine) {
  GivenPolicy given;
  given.gpu_batch_size = config.gpu_batch_size;
  given.num_gpu_batches = config.num_gpu_batches;
  given.prefill_chunk = config.prefill_chunk;
  given.cpu_attention = config.cpu_attention;
  given.kv_dtype = config.kv_dtype;
  given.kv = KvPolicyGivenBy(config);
  if (!config.percent) return given;
  const std::array<double, 6>& percent = *config.percent;
  if (machine.device != Tier::kGpu && percent[0] + percent[2] + percent[4] > 0.0) {
    throw Error(
        ErrorCode::kFlag,
        "--percent puts a share on the gpu, and there is none; --emulate-gpu SIZE makes one");
  }
  given.placement = Placement{ShareOf(percent[0], percent[1]), ShareOf(percent[2], percent[3]),
                              ShareOf(percent[4], percent[5])};
  return given;
}

Plan PlanWith(const ModelShape& shape, const Machine& machine, const Workload& work,
              const GivenPolicy& given, const Device& device) {
  const KernelNeeds needs = device.needs();
  const Policy policy = DefaultPolicy(shape, machine, work, given, needs);
  Plan plan = MakePlan(shape, machine, work, policy, needs);
  device.RefuseWhatItLacks(plan);
  return plan;
}

}  // namespace

std::filesystem::path OffloadFolder(const Config& config) {
  if (!config.offload_dir.empty()) return config.offload_dir;
  const char* named = std::getenv("TMPDIR");
  return named != nullptr && *named != '\0' ? named : "/tmp";
}

Machine ProbeMachine(const Config& config, const OpenedModel& model, const Device& device) {
  Machine machine;
  machine.name = ProcessorName();
  machine.isa = kernels::IsaName(kernels::BestIsa());
  machine.num_threads = config.num_threads > 0 ? config.num_threads : NumPhysicalCores();
  if (const DeviceMemory memory = device.memory(); memory.total_bytes > 0) {
    machine.name += ", " + device.name();
    machine.device = Tier::kGpu;
    machine.cap_bytes[Tier::kGpu] = GpuCap(config, memory);
  } else if (config.emulate_gpu_bytes.value_or(0) > 0) {
    machine.device = Tier::kGpu;
    machine.cap_bytes[Tier::kGpu] =
        std::min(*config.emulate_gpu_bytes, config.gpu_memory_bytes.value_or(INT64_MAX));
  }
  machine.cap_bytes[Tier::kDisk] = config.disk_space_bytes
                                       ? *config.disk_space_bytes
                                       : FreeDiskBytes(config) + StoredBytes(config, model);
  const int64_t emulated = device.IsHostMemory() ? machine.cap_bytes[Tier::kGpu] : 0;
  machine.cap_bytes[Tier::kCpu] = config.cpu_memory_bytes.value_or(
      std::max<int64_t>(0, AvailableMemoryBytes() / 10 * 9 - emulated));
  return machine;
}

Plan PlanFor(const Config& config, const ModelShape& shape, const Machine& machine,
             const Workload& work, const Device& device) {
  return PlanWith(shape, machine, work, PolicyGivenBy(config, machine), device);
}

void RefuseWhatCannotFit(const Config& config, const ModelShape& shape, const Machine& machine,
                         const Device& device) {
  const Workload least = {1, {{1, 1}}, {1, 1}};
  GivenPolicy one_row = PolicyGivenBy(config, machine);
  one_row.gpu_batch_size = one_row.num_gpu_batches = one_row.prefill_chunk = 1;
  PlanWith(shape, machine, least, one_row, device);
}

}  // namespace spillway
