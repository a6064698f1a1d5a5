// The one clock of rates and durations: never jumps, starts anywhere. Any thread.
#pragma once

#include <chrono>

namespace spillway {

inline double SecondsOf(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

inline double NowSeconds() { return SecondsOf(std::chrono::steady_clock::now()); }

}  // namespace spillway
