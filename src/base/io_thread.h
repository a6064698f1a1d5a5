// A thread beside those that compute: takes no signals, so that they reach the thread that acts on
// them.
#pragma once

#include <fmt/format.h>

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "spillway/error.h"

namespace spillway {

// Throws: Error kSystemLimit.
template <typename Body>
std::thread StartIoThread(Body body) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited by the new thread
  try {
    std::thread thread(std::move(body));
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
  } catch (const std::system_error& error) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw Error(ErrorCode::kSystemLimit,
                fmt::format("cannot start a thread: {}; raise ulimit -u", error.code().message()));
  }
}

}  // namespace spillway
