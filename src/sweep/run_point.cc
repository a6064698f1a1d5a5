#include "src/sweep/run_point.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>

#include "spillway/error.h"
#include "src/base/clock.h"
#include "src/base/descriptor.h"
#include "src/base/stop_signal.h"
#include "src/base/system_error.h"
#include "src/config/flags.h"

namespace spillway {
namespace {

constexpr const char* kThisProgram = "/proc/self/exe";
constexpr std::size_t kMaxDiagnostics = 64 << 10;
constexpr int kTickMs = 200;

// A second SIGINT or SIGTERM would end a run at once; a terminal's Ctrl-C has sent it one already.
constexpr int kStopSignal = SIGUSR1;

struct Pipe {
  Descriptor read;
  Descriptor write;
};

Pipe MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    ThrowSystemError(errno, "a pipe for a point's run", ErrorCode::kInternal, "try again");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Flags are the file's alone; the instruction set is the machine's.
std::vector<std::string> EnvironmentOfPoint() {
  std::vector<std::string> kept;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (!text.starts_with("SPILLWAY_") || text.starts_with("SPILLWAY_ISA="))
      kept.emplace_back(text);
  }
  return kept;
}

// Makes only calls that are safe between fork and exec.
[[noreturn]] void BecomePoint(char* const* words, char* const* environment, int diagnostics,
                              pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, kStopSignal);
  const int null = ::open("/dev/null", O_RDWR);
  const bool ready = ::getppid() == parent && null >= 0 && ::dup2(null, STDIN_FILENO) >= 0 &&
                     ::dup2(null, STDOUT_FILENO) >= 0 && ::dup2(diagnostics, STDERR_FILENO) >= 0;
  if (ready) ::execve(kThisProgram, words, environment);
  ::_exit(127);
}

pid_t Start(std::vector<std::string> words, const Descriptor& diagnostics) {
  std::vector<std::string> environment = EnvironmentOfPoint();
  const std::vector<char*> word_pointers = Pointers(words);
  const std::vector<char*> variable_pointers = Pointers(environment);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0)
    ThrowSystemError(errno, "a process for a point's run", ErrorCode::kInternal, "try again");
  if (child == 0)
    BecomePoint(word_pointers.data(), variable_pointers.data(), diagnostics.get(), parent);
  return child;
}

// One wait for more of what the run says; false: it has ended.
bool ReadMore(const Descriptor& from, std::string& text) {
  pollfd wait{from.get(), POLLIN, 0};
  if (::poll(&wait, 1, kTickMs) <= 0) return true;  // nothing yet, or a signal
  std::array<char, 4096> some;
  const ssize_t got = ::read(from.get(), some.data(), some.size());
  if (got < 0) return errno == EINTR;
  const std::size_t room = kMaxDiagnostics - std::min(kMaxDiagnostics, text.size());
  text.append(some.data(), std::min(room, static_cast<std::size_t>(got)));
  return got > 0;
}

int StatusOf(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::vector<std::string> PointCommand(const SweepPoint& point) {
  std::vector<std::string> words = {"spillway", std::string(VerbName(point.verb))};
  const std::vector<Flag> flags = FlagsOf(point.verb);
  for (const auto& [name, value] : point.settings) {
    const auto flag = std::ranges::find(flags, name, &Flag::name);
    if (flag == flags.end() || flag->num_words == 1) {
      words.push_back("--" + name + "=" + value);
      continue;
    }
    words.push_back("--" + name);
    for (std::size_t begin = 0; begin < value.size();) {
      const std::size_t end = std::min(value.find(' ', begin), value.size());
      words.push_back(value.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return words;
}

PointRun RunPoint(const SweepPoint& point, const std::filesystem::path& report,
                  const std::function<void(double)>& tick) {
  std::vector<std::string> words = PointCommand(point);
  words.push_back("--report=" + report.string());
  words.push_back("--quiet");
  Pipe pipe = MakePipe();
  const double begin_s = NowSeconds();
  const pid_t child = Start(std::move(words), pipe.write);
  pipe.write = Descriptor();
  PointRun run;
  bool told = false;
  while (ReadMore(pipe.read, run.diagnostics)) {
    tick(NowSeconds() - begin_s);
    if (StopRequested() && !told) told = ::kill(child, kStopSignal) == 0;
  }
  run.status = StatusOf(child);
  run.wall_s = NowSeconds() - begin_s;
  return run;
}

}  // namespace spillway
