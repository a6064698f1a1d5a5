#include "src/report/report_figures.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

namespace spillway {

double Rate(int64_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

double RunRate(int64_t count, const Trace& trace) {
  return Rate(count, trace.prefill.seconds + trace.decode.seconds);
}

int64_t GeneratedTokens(const Trace& trace, const RunSummary& summary) {
  return summary.score
             ? 0
             : trace.prefill.generated_tokens + trace.decode.generated_tokens - trace.lost_tokens;
}

int64_t AnsweredTokens(const Trace& trace, const RunSummary& summary) {
  return summary.score ? summary.score->num_tokens - summary.score->num_earlier_tokens
                       : GeneratedTokens(trace, summary);
}

double PredictedRate(const Trace& trace, const RunSummary& summary) {
  return summary.score ? Rate(AnsweredTokens(trace, summary), summary.predicted->total_s())
                       : summary.predicted->generated_tokens_per_s;
}

nlohmann::ordered_json ScoreTotalsJson(const ScoreSummary& score) {
  using Json = nlohmann::ordered_json;
  const std::optional<double> perplexity = score.perplexity();
  const bool finite = perplexity && std::isfinite(*perplexity);
  return {{"num_tokens", score.num_tokens},
          {"logprob_sum", score.logprob_sum},
          {"perplexity", finite ? Json(*perplexity) : Json(nullptr)}};
}

PerTier<double> Realised(const PerTier<int64_t>& amounts) {
  PerTier<double> share;
  const int64_t total = amounts[Tier::kGpu] + amounts[Tier::kCpu] + amounts[Tier::kDisk];
  if (total == 0) return share;
  for (const Tier tier : kAllTiers) {
    share[tier] = static_cast<double>(amounts[tier]) / static_cast<double>(total);
  }
  return share;
}

PerTier<double> Realised(const PerTier<RowShare>& shares) {
  PerTier<int64_t> sizes;
  for (const Tier tier : kAllTiers) sizes[tier] = shares[tier].size;
  return Realised(sizes);
}

std::string HeldTypesText(const ModelShape& shape) {
  return std::string(DTypeName(MatrixDType(shape))) + PublishedCodesText(shape);
}

std::string PublishedCodesText(const ModelShape& shape) {
  std::string text;
  std::set<std::string_view> names;
  for (const DType dtype : shape.layer_codes) names.insert(DTypeName(dtype));
  std::string_view before = ", layers in ";
  while (!names.empty()) {
    text += before;
    text += *names.begin();
    names.erase(names.begin());
    before = names.size() == 1 ? " and " : ", ";
  }
  if (shape.experts.mxfp4) text += ", experts in MXFP4";
  const std::optional<DType> head = shape.tied_head ? shape.embedding_codes : shape.head_codes;
  if (shape.embedding_codes && shape.embedding_codes == head)
    return text + fmt::format(", embedding and head in {}", DTypeName(*head));
  if (shape.embedding_codes)
    text += fmt::format(", embedding in {}", DTypeName(*shape.embedding_codes));
  if (head) text += fmt::format(", head in {}", DTypeName(*head));
  return text;
}

int64_t Parameters(const Plan& plan) {
  int64_t count = 0;
  for (const PlannedLayer& layer : plan.layers) {
    for (const PlannedTensor& tensor : layer.tensors) count += tensor.spec.rows * tensor.spec.cols;
  }
  return count;
}

std::optional<double> ScoreSummary::perplexity() const {
  if (num_tokens == 0) return std::nullopt;
  return std::exp(-logprob_sum / static_cast<double>(num_tokens));
}

}  // namespace spillway
