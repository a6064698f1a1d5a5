// CalibrateStages: what calibrations of layers and of heads have in common: the text, its windows,
// and the runs that score them. Thread rule: the main thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/report_file.h"
#include "src/report/progress.h"
#include "src/run/supervisor.h"
#include "src/verbs/chain.h"
#include "src/verbs/head_calibration.h"  // WindowLogprobs, HeadShares
#include "src/verbs/window_job.h"

namespace spillway {

// Tokens of each window, and of its prompt where the flags say.
struct WindowSize {
  int64_t tokens = 0;
  std::optional<int64_t> prompt;
};

// Windows that are scored alike. What is behind their prompts is told token by token, so that
// budgets act on it as on generated tokens.
std::vector<TextWindow> WindowsAt(const std::vector<int64_t>& begins, int64_t window,
                                  int64_t prompt);

// The policy of the flags in which each layer, or each KV head, keeps its share.
KvPolicy KvWith(const Config& config, const std::vector<double>& kept_frac);
KvPolicy KvWith(const Config& config, const HeadShares& shares);

// Share of all tokens of such rows that stays: sinks count too.
double KeptOfAll(const KvPolicy& kv, const ModelShape& shape, int64_t row_tokens);

// File that the model is measured on.
const std::filesystem::path& SourceOf(const Config& config);

// Model and policy as in the report of a run, so that the two can be compared.
nlohmann::ordered_json HeadOfReport(const Plan& plan, const KvPolicy& kv);

// "12.34 %" and "12.3 %".
std::string Percent(double frac);
std::string ShortPercent(double frac);

class CalibrateStages : public Stages {
 public:
  explicit CalibrateStages(const Opened& opened);

  // Throws: Error kFlag, kInput, and what reading throws.
  Workload ReadWork(const Setting& setting) override;

 protected:
  // A supervisor, the plan that it was made of, and the order of work.
  struct Supervised {
    const Plan& plan;
    Overlap overlap;
    Supervisor& supervisor;
  };

  virtual int64_t LongestPrompt() const = 0;
  virtual int64_t UsualSample() const = 0;  // windows, where the flags do not say

  Supervisor Supervise(const Setting& setting, const Plan& plan);

  // What each token's log-probability is with this KV policy, which takes no more memory than the
  // supervisor's plan.
  WindowLogprobs Score(const Setting& setting, const Supervised& by, const KvPolicy& kv,
                       const std::vector<TextWindow>& windows);

  // Rows of one window that keep less, each in one of the places, after one that keeps all. They
  // begin alike, so that their prompt is computed once, where the plan holds prefixes.
  Workload WorkOfLess(const TextWindow& window, int64_t num_places) const;
  // Runs such rows, at most as many as the supervisor's plan is of; it may be another window's.
  void ScoreLess(const Setting& setting, const Supervised& by, const TextWindow& window,
                 std::span<const KvLess> places, const TellLogprobs& tell,
                 const ProgressFn& progress);

  const Config& flags_;
  const OpenedModel& model_;
  ProgressLine line_;
  std::vector<TokenId> tokens_;
  WindowSize size_;
  std::vector<int64_t> begins_;  // of windows
  ReportFile output_;
  ReportFile report_;

 private:
  Feed FeedOf(int64_t prompt) const;
};

}  // namespace spillway
