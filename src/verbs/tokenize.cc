#include "src/verbs/tokenize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>

#include "src/answers/output_line.h"
#include "src/base/exit_status.h"
#include "src/base/json_text.h"
#include "src/base/stop_signal.h"
#include "src/base/terminal.h"
#include "src/requests/reader.h"
#include "src/verbs/model_for.h"
#include "src/verbs/prompt_file.h"
#include "src/verbs/whole_output.h"

namespace spillway {
namespace {

constexpr int64_t kLinesPerStopCheck = 256;

ReaderOptions OptionsFor(const Config& config, const OpenedModel& model) {
  ReaderOptions options = ReaderOptionsFor(config, model);
  // What is too long for the model is counted too, unless it is to be cut.
  if (!config.cut) options.max_positions = INT64_MAX / 2;
  return options;
}

class Counter {
 public:
  explicit Counter(int64_t max_positions) : max_positions_(max_positions) {}

  void Add(const Request& request) {
    const auto num_tokens = static_cast<int64_t>(request.prompt.size());
    num_tokens_ += num_tokens;
    ++num_prompts_;
    if (num_tokens >= max_positions_) ++num_too_long_;
    if (num_tokens <= longest_) return;
    longest_ = num_tokens;
    longest_line_ = request.line;
  }
  void AddError() { ++num_errors_; }

  int64_t num_lines() const { return num_prompts_ + num_errors_; }
  int64_t num_errors() const { return num_errors_; }

  std::string Text() const {
    std::string text = fmt::format("{} prompts of {} tokens", num_prompts_, num_tokens_);
    if (num_prompts_ > 0) {
      text += fmt::format(", {} on average, {} in the longest (line {}) of {} that the model takes",
                          num_tokens_ / num_prompts_, longest_, longest_line_, max_positions_);
    }
    if (num_too_long_ > 0) text += fmt::format("; {} too long for an answer", num_too_long_);
    if (num_errors_ > 0) text += fmt::format("; {} errors", num_errors_);
    return text + "\n";
  }

 private:
  int64_t max_positions_;
  int64_t num_prompts_ = 0;
  int64_t num_too_long_ = 0;
  int64_t num_errors_ = 0;
  int64_t num_tokens_ = 0;
  int64_t longest_ = 0;
  int64_t longest_line_ = 0;
};

std::string LineOf(const Request& request, bool counts_only) {
  std::string line =
      fmt::format(R"({{"custom_id":{},"num_tokens":{})",
                  JsonText(nlohmann::json(request.custom_id)), request.prompt.size());
  if (request.num_cut > 0) line += fmt::format(R"(,"prompt_tokens_cut":{})", request.num_cut);
  if (!counts_only) line += fmt::format(R"(,"token_ids":[{}])", fmt::join(request.prompt, ","));
  return line + "}";
}

// As a score's.
std::string LineOf(const LineError& error) {
  WriterOptions options;
  options.form = AnswerForm::kScore;
  std::string line = ErrorOutputLine(error, options);
  line.pop_back();  // its newline
  return line;
}

}  // namespace

int RunTokenize(const Config& config) {
  const OpenedModel model = ModelFor(config);
  RequestReader reader(config.input, *model.tokenizer, OptionsFor(config, model));
  reader.CheckForm();
  WholeOutput output(config);
  Counter counter(model.shape.max_positions);
  while (const std::optional<RequestOrError> line = reader.Next()) {
    if (counter.num_lines() % kLinesPerStopCheck == 0) ThrowIfStopRequested();
    if (const auto* error = std::get_if<LineError>(&*line)) {
      counter.AddError();
      output.Add(LineOf(*error));
      continue;
    }
    const Request& request = std::get<Request>(*line);
    counter.Add(request);
    output.Add(LineOf(request, config.counts_only));
  }
  output.Finish();
  PrintTo(TerminalOf(config), counter.Text());
  return counter.num_errors() == 0 ? 0 : kSomeLinesCarryErrors;
}

}  // namespace spillway
