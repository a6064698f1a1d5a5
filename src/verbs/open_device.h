// OpenDevice: from --device to what computes.
#pragma once

#include <memory>

#include "src/config/config.h"
#include "src/device/device.h"

namespace spillway {

// The GPU that --device names; with auto the first, where this build and this machine have one. The
// CPU where nothing runs and --machine says what there is.
// Throws: Error kGpu: there is no such GPU, or it cannot be used.
std::unique_ptr<Device> OpenDevice(const Config& config);

}  // namespace spillway
