// Figures that a report has both as JSON and in its table. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "spillway/plan.h"
#include "spillway/report.h"
#include "spillway/trace.h"

namespace spillway {

// Per second; 0 in no time.
double Rate(int64_t count, double seconds);

// Per second of the time that blocks were computed.
double RunRate(int64_t count, const Trace& trace);

// A run that scores generates nothing.
int64_t GeneratedTokens(const Trace& trace, const RunSummary& summary);
// Tokens that this run generated, or scored; and how many a second were predicted. Requires: there
// is a prediction.
int64_t AnsweredTokens(const Trace& trace, const RunSummary& summary);
double PredictedRate(const Trace& trace, const RunSummary& summary);
// Scores of a report: "num_tokens", "logprob_sum", "perplexity" (null where it is not finite).
nlohmann::ordered_json ScoreTotalsJson(const ScoreSummary& score);

// The share of each tier in what the plan placed, or in the room for a block's rows; zero of
// nothing.
PerTier<double> Realised(const PerTier<int64_t>& amounts);
PerTier<double> Realised(const PerTier<RowShare>& shares);

// "bf16", or "bf16, experts in MXFP4": the types that matrices are held in.
std::string HeldTypesText(const ModelShape& shape);

// ", layers in int4": which matrices are held in published codes; empty where none are.
std::string PublishedCodesText(const ModelShape& shape);

// Numbers in the model's tensors.
int64_t Parameters(const Plan& plan);

}  // namespace spillway
