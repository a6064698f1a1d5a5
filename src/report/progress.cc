#include "src/report/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "src/machine/probe.h"

namespace spillway {
namespace {

constexpr double kRedrawSeconds = 0.2;
constexpr double kPlainLineSeconds = 10.0;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string Duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

}  // namespace

ProgressLine::ProgressLine(std::FILE* out, int64_t total_rows)
    : out_(out),
      total_rows_(total_rows),
      in_place_(out != nullptr && ::isatty(::fileno(out)) == 1),
      begin_s_(Now()),
      next_s_(begin_s_ + (in_place_ ? kRedrawSeconds : kPlainLineSeconds)) {}

ProgressLine::~ProgressLine() { Clear(); }

void ProgressLine::Clear() {
  if (!drawn_) return;
  fmt::print(out_, "\r\x1b[K");
  std::fflush(out_);
  drawn_ = false;
}

void ProgressLine::Update(int64_t rows_done, int64_t rows_running, int64_t generated_tokens) {
  if (out_ == nullptr) return;
  const double now_s = Now();
  if (now_s < next_s_) return;
  next_s_ = now_s + (in_place_ ? kRedrawSeconds : kPlainLineSeconds);
  const double elapsed_s = now_s - begin_s_;
  std::string text =
      fmt::format("rows {}/{} ({} running)  {:.1f} tokens/s  ", rows_done, total_rows_,
                  rows_running, static_cast<double>(generated_tokens) / elapsed_s);
  // The rate of finished rows says nothing until a first few are done.
  if (rows_done > 0 && total_rows_ > rows_done) {
    const double left =
        static_cast<double>(total_rows_ - rows_done) / static_cast<double>(rows_done);
    text += fmt::format("ETA {}  ", Duration(elapsed_s * left));
  } else {
    text += fmt::format("elapsed {}  ", Duration(elapsed_s));
  }
  text += fmt::format("memory {:.2f} GiB", static_cast<double>(ResidentBytes()) / 0x1p30);
  fmt::print(out_, "{}{}{}", in_place_ ? "\r" : "", text, in_place_ ? "\x1b[K" : "\n");
  std::fflush(out_);
  drawn_ = in_place_;
}

}  // namespace spillway
