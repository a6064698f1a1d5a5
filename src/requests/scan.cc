#include "src/requests/scan.h"

#include <algorithm>

#include "spillway/error.h"
#include "src/base/stop_signal.h"
#include "src/requests/line_source.h"
#include "src/requests/request_parser.h"

namespace spillway {
namespace {

constexpr int64_t kLinesPerStopCheck = 256;

void TakeLongest(const RequestShape& row, InputScan& scan) {
  scan.max_prompt_logits = std::max(scan.max_prompt_logits, row.prompt_logits);
  scan.max_prompt_tokens = std::max(scan.max_prompt_tokens, row.prompt_tokens);
  scan.max_row_tokens = std::max(scan.max_row_tokens, row.slots());
}

// Every step-th request; where that gives too many, every second of them goes and the step doubles.
class EvenSample {
 public:
  explicit EvenSample(int64_t max_size) : max_size_(max_size) {}

  // `number`: of the request, from 0.
  void Add(int64_t number, const RequestShape& row, std::vector<RequestShape>& sample) {
    if (number % step_ != 0) return;
    if (std::ssize(sample) == max_size_) {
      Thin(sample);
      if (number % step_ != 0) return;
    }
    sample.push_back(row);
  }

 private:
  void Thin(std::vector<RequestShape>& sample) {
    std::size_t kept = 0;
    for (std::size_t at = 0; at < sample.size(); at += 2) sample[kept++] = sample[at];
    sample.resize(kept);
    step_ *= 2;
  }

  int64_t max_size_;
  int64_t step_ = 1;
};

}  // namespace

InputScan ScanInput(const std::filesystem::path& path, const Tokenizer& tokenizer,
                    const ReaderOptions& options, int64_t max_sample) {
  SPILLWAY_CHECK(max_sample >= 2);
  LineSource lines(path, options.max_line_bytes);
  const RequestParser parser(FormOf(path), tokenizer, options);
  InputScan scan;
  EvenSample sample(max_sample);
  while (const std::optional<Line> line = lines.Next()) {
    if (line->blank) continue;
    if (scan.num_lines++ % kLinesPerStopCheck == 0) ThrowIfStopRequested();
    const RequestOrError parsed = parser.Parse(*line);
    const auto* request = std::get_if<Request>(&parsed);
    if (request == nullptr) continue;
    const RequestShape row = ShapeOf(*request);
    TakeLongest(row, scan);
    sample.Add(scan.num_requests++, row, scan.sample);
  }
  scan.num_blank_lines = lines.num_blank_lines();
  scan.num_bytes = lines.num_bytes();
  scan.hash = lines.hash();
  return scan;
}

}  // namespace spillway
