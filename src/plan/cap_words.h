// Words in which a refusal names a tier's cap. Plain functions; any thread.
#pragma once

#include <string_view>

#include "spillway/error.h"
#include "spillway/machine.h"

namespace spillway {

struct CapWords {
  ErrorCode code;
  std::string_view noun;
  std::string_view flags;  // those that raise it
};

inline CapWords CapWordsOf(const Machine& machine, Tier tier) {
  switch (tier) {
    case Tier::kGpu:
      return {ErrorCode::kGpuMemory, "GPU memory", machine.gpu_cap_flags};
    case Tier::kCpu:
      return {ErrorCode::kCpuMemory, "CPU memory", "--cpu-memory"};
    case Tier::kDisk:
      break;
  }
  return {ErrorCode::kDiskSpace, "disk space", "--disk-space"};
}

}  // namespace spillway
