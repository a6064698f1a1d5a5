#include "src/verbs/line_warnings.h"

#include <fmt/format.h>

#include <string_view>

#include "spillway/error.h"
#include "src/base/terminal.h"

namespace spillway {
namespace {

// Keys of other programs' files that stand for one of ours and change no answer.
std::string_view MeantBy(std::string_view key) {
  if (key == "id") return "; did you mean \"custom_id\"?";
  return key == "text" ? "; did you mean \"prompt\"?" : "";
}

std::string Lines(int64_t num_lines, int64_t first_line) {
  return num_lines == 1 ? fmt::format("1 line, line {}", first_line)
                        : fmt::format("{} lines, the first is line {}", num_lines, first_line);
}

void WarnOfKey(const std::string& name, const PassedKey& passed) {
  const std::string key =
      passed.key.empty() ? "further keys are" : fmt::format("key \"{}\" is", passed.key);
  PrintWarning(fmt::format("{}: {} not known and passed over in {} (an error with --strict){}",
                           name, key, Lines(passed.num_lines, passed.first_line),
                           MeantBy(passed.key)));
}

}  // namespace

void WarnOfLines(const std::string& input, const ReaderOptions& options, const InputScan& scan) {
  const std::string name = Printable(input, 160);
  for (const PassedKey& passed : scan.passed_keys) WarnOfKey(name, passed);
  if (scan.num_cut == 0) return;
  PrintWarning(
      fmt::format("{}: {} in {}; \"{}_tokens_cut\" in the answer says by how much", name,
                  options.score ? "the context is cut from the left to fit the model's positions"
                                : "the prompt is cut",
                  Lines(scan.num_cut, scan.first_cut_line), options.score ? "context" : "prompt"));
}

}  // namespace spillway
