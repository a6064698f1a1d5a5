// The one clock of rates and durations: never jumps, starts anywhere. Any thread.
#pragma once

#include <chrono>

namespace spillway {

inline double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace spillway
