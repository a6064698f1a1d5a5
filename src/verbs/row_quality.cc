#include "src/verbs/row_quality.h"

#include <algorithm>
#include <cmath>

#include "spillway/error.h"
#include "src/base/standard_error.h"

namespace spillway {
namespace {

// Mass that is told from none: log-probabilities are of fp32.
constexpr double kLeastMass = 1e-6;

// Least sum of p ln(p / q) where q are at most `most` each and have `own_mass` together with the
// rest, whose p is `full_rest`. Without bounds q would be in proportion to p; so are those below.
// Requires: `missing` descends.
double LeastOfMissing(const std::vector<double>& missing, double most, double full_rest,
                      double own_mass) {
  double left = full_rest;  // of p, that is not at its bound
  for (const double mass : missing) left += mass;
  double divergence = 0.0;
  for (const double mass : missing) {
    if (own_mass * mass <= most * left) break;
    divergence += mass * std::log(mass / most);
    left -= mass;
    own_mass = std::max(kLeastMass, own_mass - most);
  }
  return left > kLeastMass ? divergence + left * std::log(left / own_mass) : divergence;
}

// Mean of a step, and its error as that of a ratio of two sums over rows.
template <typename Sum>
MeanWithError MeanOfSteps(const std::vector<RowQuality>& rows, Sum sum_of) {
  double sum = 0.0;
  double steps = 0.0;
  double num_rows = 0.0;
  for (const RowQuality& row : rows) {
    sum += static_cast<double>(sum_of(row));
    steps += static_cast<double>(row.num_steps);
    num_rows += row.num_steps > 0 ? 1.0 : 0.0;
  }
  const double mean = sum / steps;
  if (num_rows < 2.0) return {mean, std::nullopt};
  double squares = 0.0;
  for (const RowQuality& row : rows) {
    const double off = static_cast<double>(sum_of(row)) - mean * static_cast<double>(row.num_steps);
    squares += off * off;
  }
  return {mean, std::sqrt(num_rows / (num_rows - 1.0) * squares) / steps};
}

std::optional<AnswerLengths> LengthsOf(const std::vector<RowQuality>& rows) {
  std::vector<double> differences;
  LengthPair sum;
  for (const RowQuality& row : rows) {
    if (!row.lengths) continue;
    differences.push_back(static_cast<double>(row.lengths->own - row.lengths->full));
    sum.full += row.lengths->full;
    sum.own += row.lengths->own;
  }
  if (differences.empty()) return std::nullopt;
  const auto count = static_cast<double>(differences.size());
  AnswerLengths lengths;
  lengths.num_rows = std::ssize(differences);
  lengths.full = static_cast<double>(sum.full) / count;
  lengths.own = static_cast<double>(sum.own) / count;
  lengths.difference.mean = static_cast<double>(sum.own - sum.full) / count;
  lengths.difference.error = StandardError(differences, lengths.difference.mean);
  return lengths;
}

}  // namespace

double StepDivergence(const StepLogprobs& full, const StepLogprobs& own) {
  double divergence = 0.0;
  double full_rest = 1.0;
  double own_rest = 1.0;  // all but the tokens that both list
  std::vector<double> missing;
  for (const TokenLogprob& token : full.top) {
    const double mass = std::exp(double{token.logprob});
    if (mass == 0.0) break;
    full_rest -= mass;
    const auto same = std::ranges::find(own.top, token.token, &TokenLogprob::token);
    if (same == own.top.end()) {
      missing.push_back(mass);
      continue;
    }
    divergence += mass * (double{token.logprob} - double{same->logprob});
    own_rest -= std::exp(double{same->logprob});
  }
  const double most = std::max(kLeastMass, std::exp(double{own.top.back().logprob}));
  divergence +=
      LeastOfMissing(missing, most, std::max(0.0, full_rest), std::max(kLeastMass, own_rest));
  return std::max(0.0, divergence);
}

RowQuality CompareSteps(const std::vector<StepLogprobs>& full,
                        const std::vector<StepLogprobs>& own) {
  SPILLWAY_CHECK(full.size() == own.size());
  RowQuality row;
  row.num_steps = std::ssize(full);
  for (std::size_t step = 0; step < full.size(); ++step) {
    if (full[step].top.front().token == own[step].top.front().token) ++row.num_same;
    row.divergence += StepDivergence(full[step], own[step]);
  }
  return row;
}

std::optional<QualityReceipt> ReceiptOf(const std::vector<RowQuality>& rows) {
  QualityReceipt receipt;
  for (const RowQuality& row : rows) {
    receipt.num_rows += row.num_steps > 0 ? 1 : 0;
    receipt.num_tokens += row.num_steps;
  }
  if (receipt.num_rows == 0) return std::nullopt;
  receipt.agreement = MeanOfSteps(rows, [](const RowQuality& row) { return row.num_same; });
  receipt.divergence = MeanOfSteps(rows, [](const RowQuality& row) { return row.divergence; });
  receipt.lengths = LengthsOf(rows);
  return receipt;
}

}  // namespace spillway
