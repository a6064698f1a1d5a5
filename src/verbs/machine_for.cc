#include "src/verbs/machine_for.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <thread>

#include "policies/cost/cost_model.h"
#include "spillway/error.h"
#include "src/base/host.h"
#include "src/base/isa.h"
#include "src/base/size_text.h"
#include "src/base/terminal.h"
#include "src/base/thread_pool.h"
#include "src/gpu/gpu_needs.h"
#include "src/io/disk_folder.h"
#include "src/profile/profile_cache.h"
#include "src/report/progress.h"
#include "src/store/make_store.h"
#include "src/store/store.h"
#include "src/verbs/policy_for.h"

namespace spillway {
namespace {

// 90 % of what is free; nothing where the folder cannot be used and was not asked for.
int64_t FreeDiskBytes(const Config& config) {
  try {
    return DiskFolder(OffloadDisk(config)).FreeBytes() / 10 * 9;
  } catch (const Error&) {
    if (!config.offload_dir.empty()) throw;
    return 0;
  }
}

// A store that is there already, named by --model or made by an earlier run, has its place on disk.
int64_t StoredBytes(const Config& config, const OpenedModel& model) {
  std::filesystem::path store = model.store;
  if (store.empty()) {
    if (!HasStores(OffloadFolder(config))) return 0;  // spares a read of the weights
    ProgressLine line(ProgressStreamOf(config));
    const std::string key = ContentKey(model, line.NoteReads());
    store = StorePath(OffloadFolder(config), key);
    if (ProbeStore(store, key) != StoreState::kReady) return 0;
  }
  std::error_code error;
  const auto bytes = std::filesystem::file_size(store / kStoreWeightsName, error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

// Applies the caps of the flags, to this host or to the machine of a file.
void TakeCaps(const Config& config, Machine& machine) {
  if (config.gpu_memory_bytes && machine.device == Tier::kGpu)
    machine.cap_bytes[Tier::kGpu] = *config.gpu_memory_bytes;
  if (config.cpu_memory_bytes) machine.cap_bytes[Tier::kCpu] = *config.cpu_memory_bytes;
  if (config.disk_space_bytes) machine.cap_bytes[Tier::kDisk] = *config.disk_space_bytes;
}

// A part of the CPU's memory becomes the gpu tier, and the CPU computes for it.
void EmulateGpu(const Config& config, Machine& machine) {
  if (config.emulate_gpu_bytes.value_or(0) == 0) return;
  machine.device = Tier::kGpu;
  machine.gpu_is_emulated = true;
  machine.cap_bytes[Tier::kGpu] =
      std::min(*config.emulate_gpu_bytes, config.gpu_memory_bytes.value_or(INT64_MAX));
  machine.gpu_cap_flags =
      config.gpu_memory_bytes ? "--emulate-gpu and --gpu-memory" : "--emulate-gpu";
  TakeRates(machine, machine);
  if (config.cpu_memory_bytes) return;
  machine.cap_bytes[Tier::kCpu] =
      std::max<int64_t>(0, machine.cap_bytes[Tier::kCpu] - machine.cap_bytes[Tier::kGpu]);
}

// The machine of a file.
Machine ForeignMachine(const Config& config) {
  Machine machine = *config.machine;
  if (config.emulate_gpu_bytes.value_or(0) > 0 && machine.has_gpu()) {
    throw Error(ErrorCode::kFlag,
                "--emulate-gpu stands for a GPU, and the machine of --machine has one; leave one "
                "of the two out");
  }
  TakeCaps(config, machine);
  EmulateGpu(config, machine);
  return machine;
}

// Memory that a run may take of a GPU.
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

// Warns of flags that do not do what they seem to on this host.
void WarnOfHostFlags(const Config& config, const Device& device) {
  const auto num_processors = static_cast<int64_t>(std::thread::hardware_concurrency());
  if (num_processors > 0 && config.num_threads > num_processors) {
    PrintWarning(
        fmt::format("--threads {}: this machine has {} processors, and more threads than "
                    "that wait for one another",
                    config.num_threads, num_processors));
  }
  if (config.gpu_memory_bytes && device.IsHostMemory() && !config.emulate_gpu_bytes)
    PrintWarning("--gpu-memory: no GPU computes here, and there is nothing to cap");
}

// Whether products meet codes as they are; tiles take those of integers alone.
bool MultipliesCodes(const Model& model, bool has_tiles) {
  const auto is_code = [has_tiles](const TensorSpec& tensor) {
    constexpr std::array kIntegers = {DType::kQ8, DType::kQ4, DType::kInt8, DType::kInt4};
    if (has_tiles) return std::ranges::find(kIntegers, tensor.dtype) != kIntegers.end();
    return IsQuantised(tensor.dtype) && tensor.dtype != DType::kFp8;
  };
  return std::ranges::any_of(model.layers, [&](const LayerSpec& layer) {
    return std::ranges::any_of(layer.tensors, is_code);
  });
}

// Products in int8, which flags ask for or whose rates a file has, want codes.
void CheckCpuCompute(std::string_view isa, const Config& config, const Model& model) {
  const bool has_tiles = isa.starts_with("amx");
  if (kernels::ComputeOf(isa) != CpuCompute::kInt8 || MultipliesCodes(model, has_tiles)) return;
  if (VariesWeights(config, model.shape)) return;
  const bool is_asked = config.cpu_compute == CpuCompute::kInt8;
  throw Error(ErrorCode::kFlag,
              fmt::format("--cpu-compute int8{} is for products with codes of integers{}, and this "
                          "run has none; {}, or give --weight-bits 8 or 4",
                          is_asked ? "" : ", whose rates --machine has,",
                          has_tiles ? " (AMX multiplies all others as bf16)" : " or of 4 bits",
                          has_tiles && is_asked ? "give --cpu-compute bf16" : "leave it out"));
}

// This host, what an earlier `profile` measured of it, and its caps.
Machine ProbeMachine(const Config& config, const OpenedModel& model, const Device& device) {
  WarnOfHostFlags(config, device);
  Machine machine = HostMachine(config, device);
  const ProfileKey key = MakeProfileKey(machine, OffloadDisk(config));
  const Machine profile = config.machine ? *config.machine : CachedProfile(key).value_or(Machine{});
  TakeRates(profile, machine);
  machine.cap_bytes[Tier::kCpu] = config.cpu_memory_bytes.value_or(machine.cap_bytes[Tier::kCpu]);
  machine.cap_bytes[Tier::kDisk] = config.disk_space_bytes
                                       ? *config.disk_space_bytes
                                       : FreeDiskBytes(config) + StoredBytes(config, model);
  machine.disk_cap_is_free_space = !config.disk_space_bytes;
  if (device.IsHostMemory()) EmulateGpu(config, machine);
  return machine;
}

}  // namespace

Machine HostMachine(const Config& config, const Device& device) {
  Machine machine;
  machine.name = ProcessorName();
  machine.isa = kernels::IsaName(kernels::BestIsa(config.cpu_compute));
  machine.num_threads = config.num_threads > 0 ? config.num_threads : NumPhysicalCores();
  machine.cap_bytes[Tier::kCpu] = AvailableMemoryBytes() / 10 * 9;
  if (const DeviceMemory memory = device.memory(); memory.total_bytes > 0) {
    machine.name += ", " + device.name();
    machine.device = Tier::kGpu;
    machine.cap_bytes[Tier::kGpu] = GpuCap(config, memory);
    machine.gpu_used_bytes = memory.used_bytes;
  }
  return machine;
}

Machine MachineFor(const Config& config, const OpenedModel& model, const Device& device) {
  const bool foreign = config.machine && PlansOnly(config.verb);
  const std::string_view isa =
      foreign ? config.machine->isa : kernels::IsaName(kernels::BestIsa(config.cpu_compute));
  CheckCpuCompute(isa, config, model);
  return foreign ? ForeignMachine(config) : ProbeMachine(config, model, device);
}

void TakeRates(const Machine& profile, Machine& machine) {
  machine.rates = profile.rates;
  machine.disturbed = profile.disturbed;
  if (machine.gpu_is_emulated) machine.rates.gpu = machine.rates.cpu;
}

KernelNeeds NeedsFor(const Machine& machine, const Device& device) {
  return machine.has_gpu() ? GpuNeeds() : device.needs();
}

void RequireRates(const Machine& machine) {
  if (KnowsRates(machine)) return;
  throw Error(ErrorCode::kMachine,
              "the machine's rates are not known; run spillway profile with the same --device, "
              "--offload-dir, --threads and --cpu-compute, or give --machine FILE: one that "
              "profile wrote, or one of "
              "examples/machines (of data sheets: t4, a100-80, rtx-4090, h200)");
}

}  // namespace spillway
