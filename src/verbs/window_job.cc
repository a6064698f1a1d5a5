#include "src/verbs/window_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "spillway/error.h"
#include "src/requests/text_file.h"
#include "src/verbs/prompt_file.h"  // WorkloadOf

namespace spillway {
namespace {

// Windows are alike: more would only be counted again and again while policies are compared.
constexpr int64_t kSampleWindows = 4096;

}  // namespace

std::vector<TokenId> ReadTextTokens(const Config& config, const std::filesystem::path& file,
                                    const std::string& flag, const Tokenizer& tokenizer) {
  if (!tokenizer.encodes_text()) {
    throw Error(ErrorCode::kFlag,
                fmt::format("{}: the model has no tokenizer; give --tokenizer", flag));
  }
  const std::string text = ReadTextFile(file, flag);
  std::vector<TokenId> tokens;
  if (!text.empty()) tokens = tokenizer.Encode(text, config.special_text);
  if (tokens.size() >= 2) return tokens;
  throw Error(ErrorCode::kInput, fmt::format("{}: is too short to score: {} tokens",
                                             Printable(file.string()), tokens.size()));
}

std::optional<Request> WindowJob::Next() {
  if (next_ == windows_.size()) return std::nullopt;
  return RequestOf(next_++);
}

void WindowJob::Finish(const Request& request, const Completion& completion) {
  const std::vector<float>& logprobs = completion.scores.logprobs;
  sums_[static_cast<std::size_t>(request.line - 1)] =
      std::accumulate(logprobs.begin(), logprobs.end(), 0.0);
}

void WindowJob::Fail(const Request& request, const std::string&, const std::string&) {
  const TextWindow& window = windows_[static_cast<std::size_t>(request.line - 1)];
  throw Error(ErrorCode::kNonFinite,
              fmt::format("tokens {} to {} of the text: the model gave logits that are not finite; "
                          "check its weights, or give --kv-dtype bf16",
                          window.begin, window.end - 1));
}

ScoreSummary WindowJob::Summary() const {
  ScoreSummary summary;
  for (const TextWindow& window : windows_) summary.num_tokens += window.end - window.first;
  summary.logprob_sum = std::accumulate(sums_.begin(), sums_.end(), 0.0);  // in the text's order
  return summary;
}

Workload WindowJob::Work() const {
  InputScan scan;
  scan.num_requests = num_windows();
  for (std::size_t index = 0; index < windows_.size(); ++index) {
    const RequestShape row = ShapeOf(RequestOf(index));
    scan.TakeLongest(row);
    if (static_cast<int64_t>(index) < kSampleWindows) scan.sample.push_back(row);
  }
  return WorkloadOf(scan);
}

Request WindowJob::RequestOf(std::size_t index) const {
  const TextWindow& window = windows_[index];
  KnownTokens text;
  text.tokens.assign(tokens_.begin() + window.begin, tokens_.begin() + window.end);
  text.first = window.first - window.begin;
  if (feed_.start) text.tokens.front() = *feed_.start;
  Request request = ScoreRequest(std::move(text), feed_.prefill);
  request.line = static_cast<int64_t>(index) + 1;
  return request;
}

}  // namespace spillway
