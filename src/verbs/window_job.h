// WindowJob: the windows of one text as requests whose tokens are known, for perplexity.
// Thread rule: the engine's thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "spillway/model.h"
#include "spillway/report.h"  // ScoreSummary
#include "spillway/workload.h"
#include "src/config/config.h"
#include "src/requests/score_request.h"
#include "src/run/job.h"
#include "src/tokenizer/tokenizer.h"
#include "src/verbs/text_windows.h"

namespace spillway {

// The tokens of a text file; `flag` is named in errors.
// Throws: Error kFlag: the model has no tokenizer; kInput: unusable, or too short to score.
std::vector<TokenId> ReadTextTokens(const Config& config, const std::filesystem::path& file,
                                    const std::string& flag, const Tokenizer& tokenizer);

// How windows are fed.
struct Feed {
  ScorePrefill prefill;
  std::optional<TokenId> start;  // in place of each window's first token
};

// Line N is window N.
class WindowJob : public Job {
 public:
  // Lifetime: the tokens outlive the job.
  WindowJob(const std::vector<TokenId>& tokens, std::vector<TextWindow> windows, const Feed& feed)
      : tokens_(tokens), windows_(std::move(windows)), feed_(feed), sums_(windows_.size()) {}

  std::optional<Request> Next() override;
  void Finish(const Request& request, const Completion& completion) override;
  // A perplexity of the rest of a text would be another text's. Throws: Error kNonFinite.
  void Fail(const Request& request, const std::string& code, const std::string& message) override;

  ScoreSummary Summary() const;
  Workload Work() const;
  int64_t num_windows() const { return static_cast<int64_t>(windows_.size()); }

 protected:
  Request RequestOf(std::size_t index) const;

 private:
  const std::vector<TokenId>& tokens_;
  std::vector<TextWindow> windows_;
  Feed feed_;
  std::vector<double> sums_;  // [window]
  std::size_t next_ = 0;
};

}  // namespace spillway
