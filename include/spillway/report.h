// Report: what was asked, planned and measured, side by side. The last stage.
// Thread rule: pure functions of values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spillway/plan.h"
#include "spillway/prediction.h"
#include "spillway/quality.h"
#include "spillway/sampling.h"
#include "spillway/trace.h"

namespace spillway {

// Figures that `score` adds to a run's report, of all lines of the output. Natural logs.
struct ScoreSummary {
  int64_t num_tokens = 0;
  double logprob_sum = 0.0;
  int64_t num_earlier_tokens = 0;  // of them, which an interrupted run had scored

  // exp(-mean); nullopt without a token.
  std::optional<double> perplexity() const;
};

// Lines of the output that a resumed run found answered.
struct ResumedSummary {
  int64_t num_completions = 0;
  int64_t num_errors = 0;
};

// Sampling of rows that say nothing themselves.
struct SamplingSummary {
  Sampling sampling;
  std::vector<std::string> from_generation_config;  // settings that the model's file states
};

// All of it counts what this run did, but for the fingerprint and the score.
struct RunSummary {
  int64_t num_requests = 0;
  int64_t num_completions = 0;
  int64_t num_errors = 0;
  int64_t num_empty = 0;  // completions without a text
  bool is_interrupted = false;
  double total_s = 0.0;
  std::string fingerprint;  // xxh64 of all generated token ids of the output, in input order;
                            // empty (null in the report) where the output was whole before
  std::optional<ScoreSummary> score;
  std::optional<Prediction> predicted = std::nullopt;  // of this run; none where rates are unknown
  std::optional<ResumedSummary> resumed = std::nullopt;
  std::optional<SamplingSummary> sampling = std::nullopt;  // of a run that samples
  std::optional<QualityReceipt> quality = std::nullopt;    // of a run with --shadow
};

// The JSON of docs/formats.md, "Report", indented; links and predictions that this run has none of
// are null. Beside its keys: "phases" (of prefill and decode: passes, compute_s, wait_s, links),
// "tiers.*.planned_bytes" (by use), "links.disk_read.rereads", and "prediction_error": for
// "prefill", "decode", each of "links" (busy seconds) and each of "units" (embedding, attention,
// mlp, head, sampling: seconds of computes) "predicted_s", "measured_s" and "error", predicted over
// measured less one. "sampling", of generate alone, is how rows are sampled that say nothing.
// "interrupted", in the report of a run that was stopped alone, is true.
// "quality", with --shadow alone, is its receipt: "num_rows", "num_tokens", "same_token_frac" and
// "divergence" with their "..._error", "answers" ("num_rows", "mean_tokens", "mean_tokens_full",
// "difference_error"; null where this run answered no row of the sample), and "seconds".
// "resumed" ("num_completions", "num_errors"), in a resumed run alone, is what was answered before
// it; all else but the fingerprint and the score is of the run itself.
std::string ReportJson(const Plan& plan, const Trace& trace, const RunSummary& summary);

// The JSON of a plan that is not run: what a run measures is null. `sampling` is of a plan of
// generate alone.
std::string PlanJson(const Plan& plan, const Workload& work,
                     const std::optional<Prediction>& predicted,
                     const std::optional<SamplingSummary>& sampling);

// Table of where every byte of a plan goes, for a terminal.
std::string PlanTable(const Plan& plan, const Workload& work,
                      const std::optional<Prediction>& predicted);

// A run in short, for a terminal.
std::string ReportTable(const Plan& plan, const Trace& trace, const RunSummary& summary);

}  // namespace spillway
