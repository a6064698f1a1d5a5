#include "src/report/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "src/base/clock.h"
#include "src/base/host.h"
#include "src/base/size_text.h"
#include "src/base/terminal.h"
#include "src/report/progress_text.h"

namespace spillway {
namespace {

constexpr double kRedrawSeconds = 0.2;
constexpr double kPlainLineSeconds = 10.0;

// Columns of the terminal; 80 where it does not say.
std::size_t Width(std::FILE* out) {
  winsize size{};
  return ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

ProgressLine::ProgressLine(std::FILE* out)
    : out_(out), in_place_(out != nullptr && ::isatty(::fileno(out)) == 1) {}

void ProgressLine::Clear() {
  if (drawn_) RedrawLine(out_, "");
  drawn_ = false;
}

void ProgressLine::Warn(const std::string& text) {
  Clear();
  PrintWarning(text);
}

void ProgressLine::Draw(std::string text) {
  // A line that wraps could not be redrawn in place.
  if (in_place_) text.resize(std::min(text.size(), Width(out_) - 1));
  in_place_ ? RedrawLine(out_, text) : PrintTo(out_, text + "\n");
  drawn_ = in_place_;
}

void ProgressLine::Note(const std::string& text) {
  if (in_place_) Draw(text);
}

ReadProgress ProgressLine::NoteReads() {
  return [this](const std::string& name, int64_t done, int64_t total) {
    Note(fmt::format("reading {}: {} of {}", Printable(name), SizeText(done), SizeText(total)));
  };
}

void ProgressLine::Begin(const ExpectedWork& expected) {
  expected_ = expected;
  eta_ = Eta(expected);
  read_ = written_ = {};
  begin_s_ = NowSeconds();
  next_s_ = begin_s_ + (in_place_ ? kRedrawSeconds : kPlainLineSeconds);
}

void ProgressLine::Update(const WorkDone& done) {
  const double now_s = NowSeconds();
  const double elapsed_s = now_s - begin_s_;
  eta_.See(done, elapsed_s);
  if (out_ == nullptr) return;
  read_.See(done.PromptTokens(), elapsed_s);
  written_.See(static_cast<double>(done.generated_tokens), elapsed_s);
  if (now_s < next_s_) return;
  next_s_ = now_s + (in_place_ ? kRedrawSeconds : kPlainLineSeconds);
  const std::vector<std::string> parts =
      ProgressParts({expected_, done, elapsed_s, eta_.LeftSeconds(), eta_.SecondsToRowEnd(),
                     read_.PerSecond(), written_.PerSecond(), ResidentBytes()});
  Draw(JoinParts(parts, in_place_ ? Width(out_) - 1 : std::string::npos));
}

}  // namespace spillway
