// Children of tests that change limits or streams of a process.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "spillway/error.h"
#include "src/base/exit_status.h"

namespace spillway {

// Runs `action` in a child process with `stdout_fd` as its standard output; returns its exit
// status.
inline int InChild(int stdout_fd, const std::function<int()>& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
    if (stdout_fd >= 0) ::dup2(stdout_fd, STDOUT_FILENO);
    int status = 99;
    try {
      status = action();
    } catch (const Error& error) {
      status = ExitStatus(error.code());
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

}  // namespace spillway
