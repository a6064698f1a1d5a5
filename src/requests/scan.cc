#include "src/requests/scan.h"

#include <algorithm>

#include "src/requests/line_source.h"
#include "src/requests/request_parser.h"

namespace spillway {
namespace {

// A start token and the space that SentencePiece puts in front.
constexpr int64_t kTokensBesideBytes = 2;

void AddToSample(const RequestOrError& parsed, InputScan& scan) {
  const auto* request = std::get_if<Request>(&parsed);
  if (request == nullptr) {
    ++scan.num_bad_in_sample;
    return;
  }
  const SampledRequest row{static_cast<int64_t>(request->prompt.size()),
                           request->sampling.max_tokens, request->NumPromptLogits()};
  scan.max_prompt_logits = std::max(scan.max_prompt_logits, row.num_prompt_logits);
  scan.max_prompt_tokens = std::max(scan.max_prompt_tokens, row.num_prompt_tokens);
  scan.max_row_tokens = std::max(scan.max_row_tokens, row.num_prompt_tokens + row.max_tokens);
  scan.sample.push_back(row);
}

}  // namespace

InputScan ScanInput(const std::filesystem::path& path, const Tokenizer& tokenizer,
                    const ReaderOptions& options, int64_t sample_lines) {
  LineSource lines(path, options.max_line_bytes);
  const RequestParser parser(FormOf(path), tokenizer, options);
  InputScan scan;
  int64_t longest_bytes = 0;
  while (const std::optional<Line> line = lines.Next()) {
    if (line->blank) continue;
    if (++scan.num_lines <= sample_lines) {
      AddToSample(parser.Parse(*line), scan);
    } else if (!line->too_long) {
      longest_bytes = std::max(longest_bytes, line->num_bytes);
    }
  }
  scan.num_blank_lines = lines.num_blank_lines();
  scan.num_bytes = lines.num_bytes();
  scan.hash = lines.hash();
  scan.is_complete = scan.num_lines <= sample_lines;
  if (!scan.is_complete) {
    const int64_t by_bytes =
        std::min(longest_bytes + kTokensBesideBytes, options.max_positions - 1);
    scan.max_prompt_tokens = std::max(scan.max_prompt_tokens, by_bytes);
    scan.max_row_tokens = options.max_positions;
    if (options.score) scan.max_prompt_logits = scan.max_prompt_tokens;
  }
  return scan;
}

}  // namespace spillway
