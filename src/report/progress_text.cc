#include "src/report/progress_text.h"

#include <fmt/format.h>

#include <cmath>

#include "src/base/size_text.h"

namespace spillway {
namespace {

constexpr std::string_view kBetween = "  ";

std::string TimeLeftText(const ProgressFigures& figures) {
  if (figures.left_s) return fmt::format("ETA {}", DurationText(*figures.left_s));
  return "ETA unknown";
}

std::string RowsText(const ExpectedWork& expected, const WorkDone& done) {
  return fmt::format("rows {}/{}", GroupedText(expected.earlier_rows + done.rows),
                     GroupedText(expected.earlier_rows + expected.rows));
}

// "prefill 4,100 of 9,691 tokens, layer 7 of 24"; passes of decode are short.
std::string PhaseText(const WorkDone& done) {
  const PassDone& pass = done.pass;
  if (!pass.prefills()) return fmt::format("decode of {} rows", GroupedText(done.rows_running));
  const double read = pass.share() * static_cast<double>(pass.prompt_tokens);
  return fmt::format("prefill {} of {} tokens, layer {} of {}", GroupedText(std::llround(read)),
                     GroupedText(pass.prompt_tokens), pass.layer + 1, pass.num_layers);
}

}  // namespace

std::string DurationText(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  if (whole < 100 * 3600) return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
  return fmt::format("{} d {:02} h", whole / 86400, whole / 3600 % 24);
}

std::string GroupedText(int64_t number) {
  std::string text = std::to_string(number);
  const std::size_t first = number < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > first + 3;) text.insert(at -= 3, 1, ',');
  return text;
}

std::vector<std::string> ProgressParts(const ProgressFigures& figures) {
  const WorkDone& done = figures.done;
  std::vector<std::string> parts = {TimeLeftText(figures), RowsText(figures.expected, done),
                                    PhaseText(done)};
  if (!figures.left_s) parts.push_back(fmt::format("elapsed {}", DurationText(figures.elapsed_s)));
  if (done.rows == 0 && figures.to_row_end_s)
    parts.push_back(fmt::format("first answer in {}", DurationText(*figures.to_row_end_s)));
  parts.push_back(fmt::format("{} tokens read at {:.1f}/s",
                              GroupedText(std::llround(done.PromptTokens())), figures.read_per_s));
  parts.push_back(
      fmt::format("{} new at {:.1f}/s", GroupedText(done.generated_tokens), figures.written_per_s));
  parts.push_back(fmt::format("memory {}", SizeText(figures.memory_bytes)));
  return parts;
}

std::string JoinParts(const std::vector<std::string>& parts, std::size_t width) {
  std::string text = parts.front().substr(0, width);
  for (std::size_t at = 1; at < parts.size(); ++at) {
    if (text.size() + kBetween.size() + parts[at].size() > width) break;
    text.append(kBetween).append(parts[at]);
  }
  return text;
}

}  // namespace spillway
