// Batches of a stream: which lines run together. A batch ends where the input pauses, at a line
// {"flush":true}, at a bound on its size, and at the end.
// Thread rule: the main thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "spillway/workload.h"
#include "src/answers/answer_stream.h"
#include "src/requests/line_stream.h"
#include "src/requests/request_parser.h"
#include "src/requests/scan.h"  // InputScan
#include "src/run/job.h"
#include "src/sampling/request.h"
#include "src/tokenizer/tokenizer.h"
#include "src/verbs/chain.h"  // Setting

namespace spillway {

struct StreamedRequest {
  Request request;
  uint64_t text_hash = 0;  // of its line
};
using StreamBatch = std::vector<StreamedRequest>;

Workload WorkloadOf(const StreamBatch& batch);
// With the prefix of its prompts (WorkloadOf in prompt_file.h).
Workload WorkloadOf(const StreamBatch& batch, const Setting& setting);

class BatchReader {
 public:
  // Reads standard input. Lines that cannot run are answered as they are read.
  // Lifetime: tokenizer and answers outlive the reader. Throws: as OpenInput and LineStream.
  BatchReader(const ReaderOptions& options, const Tokenizer& tokenizer, AnswerStream& answers,
              double pause_s);

  // The next batch, which has a request; empty at the end.
  // Throws: as LineStream::NextWithin and AnswerStream::Put.
  StreamBatch Next();

  int64_t num_lines() const { return num_lines_; }  // taken so far, blank ones and flushes too

 private:
  // Whether the batch goes on behind a line.
  enum class Bound { kNone, kFlush };

  Bound Take(const Line& line, StreamBatch& batch);
  void Warn();

  const ReaderOptions options_;
  RequestParser parser_;
  AnswerStream& answers_;
  double pause_s_;
  LineStream lines_;
  int64_t num_lines_ = 0;
  InputScan notes_;                    // of the batch: what is warned of
  std::set<std::string> warned_keys_;  // each once
};

// A batch on one side, the answers on the other.
class StreamJob final : public Job {
 public:
  // Lifetime: both outlive the job.
  StreamJob(StreamBatch& batch, AnswerStream& answers);

  std::optional<Request> Next() override;
  void Finish(const Request& request, const Completion& completion) override;
  void Fail(const Request& request, const std::string& code, const std::string& message) override;

 private:
  StreamBatch& batch_;
  AnswerStream& answers_;
  std::unordered_map<int64_t, uint64_t> text_hashes_;  // by line
  std::size_t next_ = 0;
};

}  // namespace spillway
