#include "src/verbs/open_device.h"

#include "spillway/error.h"
#include "src/base/isa.h"  // BestIsa
#include "src/compute/host_device.h"
#if defined(SPILLWAY_CUDA)
#include "src/cuda/device.h"
#include "src/gpu/cuda_device.h"
#endif

namespace spillway {
#if defined(SPILLWAY_CUDA)
namespace {

std::unique_ptr<Device> OpenGpu(const Config& config, int index) {
  if (config.cpu_compute != CpuCompute::kFp32) {
    throw Error(ErrorCode::kFlag,
                "--cpu-compute: products run on the GPU; leave it out, or give --device cpu");
  }
  return std::make_unique<CudaDevice>(index);
}

}  // namespace
#endif

// Flags have refused a GPU that is named where the build has no CUDA.
std::unique_ptr<Device> OpenDevice(const Config& config) {
#if defined(SPILLWAY_CUDA)
  const bool foreign = config.machine && PlansOnly(config.verb);
  const bool emulates = config.emulate_gpu_bytes.value_or(0) > 0;
  if (config.device.kind == DeviceKind::kCuda) {
    if (emulates) {
      throw Error(ErrorCode::kFlag,
                  "--emulate-gpu stands for a GPU on the CPU; with --device cuda "
                  "leave it out, and cap the GPU with --gpu-memory");
    }
    return OpenGpu(config, config.device.index);
  }
  if (config.device.kind == DeviceKind::kAuto && !emulates && !foreign && CountGpus() > 0) {
    return OpenGpu(config, 0);
  }
#endif
  return std::make_unique<HostDevice>(kernels::BestIsa(config.cpu_compute));
}

}  // namespace spillway
