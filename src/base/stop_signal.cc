#include "src/base/stop_signal.h"

#include <atomic>
#include <csignal>
#include <initializer_list>

#include "spillway/error.h"

namespace spillway {
namespace {

// Written by whichever thread the signal comes to, read by all.
std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal's handler may not wait for a lock");

void OnStopSignal(int signal) {
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

void ThrowIfStopRequested() {
  if (StopRequested()) throw Error(ErrorCode::kInterrupted, "stopped by a signal");
}

}  // namespace spillway
