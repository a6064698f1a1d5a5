#include "src/verbs/input_text.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "spillway/error.h"
#include "src/report/progress_text.h"  // GroupedText
#include "src/requests/key_check.h"    // kSurplusKey

namespace spillway {
namespace {

constexpr std::size_t kMaxReasons = 5;
constexpr std::size_t kMaxMessage = 160;  // bytes of a line's

std::string NameOf(const Config& config) { return Printable(InputName(config.input, {}), 120); }

std::string LinesText(int64_t num_lines) {
  return fmt::format("{} line{}", GroupedText(num_lines), num_lines == 1 ? "" : "s");
}

std::string ReasonText(const BadLines& bad) {
  const std::string first = Printable(bad.first, kMaxMessage);
  if (bad.num_lines == 1) return fmt::format("  1 line cannot run: {}\n", first);
  return fmt::format("  {} cannot run ({}), the first: {}\n", LinesText(bad.num_lines), bad.code,
                     first);
}

std::string ReasonsText(const std::vector<BadLines>& bad) {
  std::string text;
  const std::size_t num_shown = std::min(kMaxReasons, bad.size());
  for (std::size_t at = 0; at < num_shown; ++at) text += ReasonText(bad[at]);
  int64_t num_more = 0;
  for (std::size_t at = num_shown; at < bad.size(); ++at) num_more += bad[at].num_lines;
  if (num_more > 0) text += fmt::format("  {} more cannot run\n", LinesText(num_more));
  return text;
}

// "Thu 03:40"; in more than six days the date. The time is this host's.
std::string TimeIn(double seconds) {
  constexpr double kSixDays = 6 * 86400.0;
  const std::time_t time = std::time(nullptr) + static_cast<std::time_t>(std::llround(seconds));
  std::tm local{};
  ::localtime_r(&time, &local);
  return seconds < kSixDays ? fmt::format("{:%a %H:%M}", local)
                            : fmt::format("{:%Y-%m-%d %H:%M}", local);
}

}  // namespace

std::string InputText(const Config& config, const InputScan& scan, int64_t num_left) {
  std::string text = fmt::format("{}: {}, {} can run", NameOf(config), LinesText(scan.num_lines),
                                 GroupedText(scan.num_requests));
  if (scan.num_requests == 0) return text + "\n" + ReasonsText(scan.bad_lines);
  const bool scores = config.verb == Verb::kScore;
  text += fmt::format(": {} tokens to read, {}{} to {}; the longest row has {} (line {})\n",
                      GroupedText(scan.num_prompt_tokens), scores ? "" : "at most ",
                      GroupedText(scan.num_new_tokens), scores ? "score" : "write",
                      GroupedText(scan.max_row_tokens), scan.longest_line);
  if (num_left < scan.num_requests)
    text += fmt::format("  {} are answered, {} are left\n",
                        GroupedText(scan.num_requests - num_left), GroupedText(num_left));
  const OtherBeginning& other = scan.other_beginning;
  if (other.line > 0 && config.shares_beginnings)
    text += fmt::format(
        "  line {} does not begin as the {} before it, which have {} more tokens in common: each "
        "row computes these\n",
        other.line, GroupedText(other.num_before), GroupedText(other.tokens_lost));
  return text + ReasonsText(scan.bad_lines);
}

std::string PrefixText(const Workload& work, const Plan& plan) {
  if (work.prefix.empty()) return "";
  const int64_t num_tokens = plan.prefix.num_tokens();
  std::string how = "computed and held once";
  if (num_tokens < std::ssize(work.prefix))
    how = fmt::format("{} of them are computed and held once, as memory has room for no more",
                      GroupedText(num_tokens));
  if (plan.AttendsBeside())
    how =
        "computed for each row, as the CPU attends (--no-cpu-attention computes and holds them "
        "once)";
  if (plan.shape.rope.scaling.depends_on_length())
    how = "computed for each row, as keys turn by its length";
  return fmt::format("  the first {} tokens of all are the same: {}\n",
                     GroupedText(std::ssize(work.prefix)), how);
}

std::string DoneByText(int64_t num_requests, const std::optional<Prediction>& predicted) {
  if (!predicted || num_requests == 0 || predicted->total_s() <= 0.0) return "";
  const double total_s = predicted->total_s();
  const double per_hour = 3600.0 * static_cast<double>(num_requests) / total_s;
  return fmt::format(
      "{} request{}, done about {} (in {}), {} requests/h, passes that read prompts {:.0f} % of "
      "it\n",
      GroupedText(num_requests), num_requests == 1 ? "" : "s", TimeIn(total_s),
      DurationText(total_s),
      per_hour < 10.0 ? fmt::format("{:.1f}", per_hour) : GroupedText(std::llround(per_hour)),
      100.0 * predicted->prefill_s / total_s);
}

void RefuseBadLines(const Config& config, const InputScan& scan) {
  if (!config.strict) return;
  const BadLines* first = nullptr;
  int64_t num_bad = 0;
  for (const BadLines& bad : scan.bad_lines) {
    if (bad.code == kSurplusKey) continue;
    if (first == nullptr) first = &bad;
    num_bad += bad.num_lines;
  }
  if (first == nullptr) return;
  throw Error(ErrorCode::kInput,
              fmt::format("{}: {} of {} cannot run: {}; correct the file or leave out --strict",
                          NameOf(config), GroupedText(num_bad), LinesText(scan.num_lines),
                          Printable(first->first, kMaxMessage)));
}

}  // namespace spillway
