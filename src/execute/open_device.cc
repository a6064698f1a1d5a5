#include "src/execute/open_device.h"

#include "spillway/error.h"
#include "src/execute/host_device.h"
#if defined(SPILLWAY_CUDA)
#include "src/cuda/device.h"
#include "src/execute/cuda_device.h"
#endif

namespace spillway {

// Without CUDA in the build, flags have refused a GPU that is named.
std::unique_ptr<Device> OpenDevice(const Config& config) {
#if defined(SPILLWAY_CUDA)
  const bool emulates = config.emulate_gpu_bytes.value_or(0) > 0;
  if (config.device.kind == DeviceKind::kCuda) {
    if (emulates) {
      throw Error(ErrorCode::kFlag,
                  "--emulate-gpu stands for a GPU on the CPU; with --device cuda "
                  "leave it out, and cap the GPU with --gpu-memory");
    }
    return std::make_unique<CudaDevice>(config.device.index);
  }
  if (config.device.kind == DeviceKind::kAuto && !emulates && CountGpus() > 0) {
    return std::make_unique<CudaDevice>(0);
  }
#else
  static_cast<void>(config);
#endif
  return std::make_unique<HostDevice>();
}

}  // namespace spillway
