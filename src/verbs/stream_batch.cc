#include "src/verbs/stream_batch.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/hash.h"
#include "src/requests/input_file.h"
#include "src/requests/input_form.h"
#include "src/requests/passed_keys.h"
#include "src/verbs/line_warnings.h"
#include "src/verbs/prompt_file.h"  // WorkloadOf

namespace spillway {
namespace {

// Bounds of a batch: with rows of a thousand tokens its requests take about 500 MiB.
constexpr std::size_t kMaxRequests = 65536;
constexpr int64_t kMaxTextBytes = 64 << 20;

// Requests whose lengths the search weighs.
constexpr std::size_t kSampleRequests = 4096;

InputScan ScanOf(const StreamBatch& batch) {
  InputScan scan;
  const std::size_t step = batch.size() / kSampleRequests + 1;
  for (std::size_t at = 0; at < batch.size(); ++at) {
    const Request& request = batch[at].request;
    const RequestShape row = ShapeOf(request);
    scan.TakeLongest(row);
    scan.TakePrefix(request);
    if (at % step == 0) scan.sample.push_back(row);
    ++scan.num_requests;
  }
  return scan;
}

// {"flush":true} and nothing else.
bool IsFlush(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  if (text.size() > kLongest || text.find("flush") == std::string_view::npos) return false;
  const nlohmann::json line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  return line == nlohmann::json{{"flush", true}};
}

}  // namespace

Workload WorkloadOf(const StreamBatch& batch) { return WorkloadOf(ScanOf(batch)); }

Workload WorkloadOf(const StreamBatch& batch, const Setting& setting) {
  return WorkloadOf(ScanOf(batch), setting);
}

BatchReader::BatchReader(const ReaderOptions& options, const Tokenizer& tokenizer,
                         AnswerStream& answers, double pause_s)
    : options_(options),
      parser_(InputForm::kJsonLines, tokenizer, options),
      answers_(answers),
      pause_s_(pause_s),
      lines_(OpenInput("-"), InputName("-", options),
             {.line_bytes = options.max_line_bytes, .ahead_bytes = kMaxTextBytes}) {}

StreamBatch BatchReader::Next() {
  StreamBatch batch;
  int64_t text_bytes = 0;
  notes_ = {};
  while (batch.size() < kMaxRequests && text_bytes < kMaxTextBytes) {
    const Arrival arrival = batch.empty() ? lines_.Next() : lines_.NextWithin(pause_s_);
    if (arrival.kind != Arrival::Kind::kLine) break;
    ++num_lines_;
    text_bytes += arrival.num_bytes;
    if (Take(arrival.AsLine(), batch) == Bound::kFlush && !batch.empty()) break;
  }
  Warn();
  return batch;
}

BatchReader::Bound BatchReader::Take(const Line& line, StreamBatch& batch) {
  if (line.blank) return Bound::kNone;
  if (IsFlush(line.text)) return Bound::kFlush;
  ParsedLine parsed = parser_.Parse(line);
  const uint64_t text_hash = TextHash(line.text);
  PassedKeys passed;
  passed.Add(line.number, parsed.notes.passed_over);
  for (const PassedKey& key : passed.keys())
    if (warned_keys_.insert(key.key).second) notes_.passed_keys.push_back(key);
  if (const auto* error = std::get_if<LineError>(&parsed.item)) {
    answers_.Put(*error, text_hash);
    return Bound::kNone;
  }
  Request& request = std::get<Request>(parsed.item);
  notes_.NoteCut(request);
  if (request.scored && request.scored->told.empty()) {
    answers_.Put(request, {}, text_hash);
  } else {
    batch.push_back({std::move(request), text_hash});
  }
  return Bound::kNone;
}

void BatchReader::Warn() { WarnOfLines(InputName("-", options_), options_, notes_); }

StreamJob::StreamJob(StreamBatch& batch, AnswerStream& answers) : batch_(batch), answers_(answers) {
  for (const StreamedRequest& streamed : batch)
    text_hashes_.emplace(streamed.request.line, streamed.text_hash);
}

std::optional<Request> StreamJob::Next() {
  if (next_ == batch_.size()) return std::nullopt;
  return std::move(batch_[next_++].request);
}

void StreamJob::Finish(const Request& request, const Completion& completion) {
  answers_.Put(request, completion, text_hashes_.at(request.line));
}

void StreamJob::Fail(const Request& request, const std::string& code, const std::string& message) {
  answers_.Put(LineError{request.line, request.custom_id, code, message},
               text_hashes_.at(request.line));
}

}  // namespace spillway
