// FileJob: the lines of the input file on one side, the lines of the output file on the other.
// Thread rule: as Job. Lifetime: what it is made of outlives it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/answers/writer.h"
#include "src/requests/reader.h"
#include "src/run/job.h"
#include "src/verbs/shadow_rows.h"

namespace spillway {

class FileJob final : public Job {
 public:
  // `shadow` null: no sample of the rows is looked at.
  FileJob(RequestReader& reader, CompletionWriter& writer, ShadowRows* shadow)
      : reader_(reader), writer_(writer), shadow_(shadow) {}

  // Returns nullopt also when too many lines wait for an unfinished one: the block then runs before
  // more is read.
  std::optional<Request> Next() override;
  void Finish(const Request& request, const Completion& completion) override;
  void Fail(const Request& request, const std::string& code, const std::string& message) override;

  int64_t num_requests() const { return num_requests_; }

 private:
  RequestReader& reader_;
  CompletionWriter& writer_;
  ShadowRows* shadow_;
  int64_t num_requests_ = 0;
  int64_t num_unfinished_ = 0;
  int64_t num_ahead_ = 0;  // lines read since a request was first left unfinished
};

}  // namespace spillway
