#include "src/stop_signal.h"

#include <csignal>
#include <initializer_list>

#include "spillway/error.h"

namespace spillway {
namespace {

volatile std::sig_atomic_t stop_signal = 0;

void OnStopSignal(int signal) {
  if (stop_signal != 0 && (signal == SIGINT || signal == SIGTERM)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  stop_signal = signal;
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

bool StopRequested() { return stop_signal != 0; }

void ThrowIfStopRequested() {
  if (StopRequested()) throw Error(ErrorCode::kInterrupted, "stopped by a signal");
}

}  // namespace spillway
