// A thread beside those that compute: takes no signals, so that they reach the thread that acts on
// them.
#pragma once

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "src/base/system_error.h"

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
    ThrowSystemError(error.code().value(), "cannot start a thread", ErrorCode::kSystemLimit,
                     "close other programs");
  }
}

}  // namespace spillway
