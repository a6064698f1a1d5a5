#include "src/base/stop_signal.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <initializer_list>

#include "spillway/error.h"

namespace spillway {
namespace {

// Written by whichever thread the signal comes to, read by all.
std::atomic<bool> stop_requested = false;
std::atomic<bool> stops_at_once = false;
std::atomic<int64_t> requested_ns = 0;
std::atomic<int64_t> grace_ns = 0;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal's handler may not wait for a lock");
static_assert(std::atomic<int64_t>::is_always_lock_free, "likewise");

int64_t Nanoseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

bool StopIsDue() {
  if (!stop_requested) return false;
  return stops_at_once || Nanoseconds() - requested_ns >= grace_ns;
}

void OnStopSignal(int signal) {
  if (signal == SIGINT || signal == SIGHUP) stops_at_once = true;
  if (!stop_requested) requested_ns = Nanoseconds();
  if (stop_requested.exchange(true) && (signal == SIGINT || signal == SIGTERM)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

void InstallStopSignals() {
  struct sigaction action = {};
  action.sa_handler = OnStopSignal;
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: a read that waits for a pipe must come back to notice the stop.
  action.sa_flags = SA_NODEFER;
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) ::sigaction(signal, &action, nullptr);
  struct sigaction previous = {};
  if (::sigaction(SIGHUP, nullptr, &previous) == 0 && previous.sa_handler != SIG_IGN) {
    ::sigaction(SIGHUP, &action, nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

bool StopRequested() { return stop_requested.load(); }

void SetStopGrace(double seconds) {
  constexpr double kForTheEnd = 0.1;  // of the time, to put on the disk what has ended
  grace_ns = static_cast<int64_t>((1.0 - kForTheEnd) * 1e9 * seconds);
}

void ThrowIfStopRequested() {
  if (StopIsDue()) throw Error(ErrorCode::kInterrupted, "stopped by a signal");
}

void ThrowIfNothingMayBegin() {
  if (StopRequested()) throw Error(ErrorCode::kInterrupted, "stopped by a signal");
}

}  // namespace spillway
