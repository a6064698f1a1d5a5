#include "src/report/quality_text.h"

#include <fmt/format.h>

#include <cmath>

#include "src/report/progress_text.h"  // GroupedText

namespace spillway {
namespace {

// Nats a token that a run may lose without a warning: five times what calibrate allows by itself.
constexpr double kLossWithoutWarning = 0.05;

// "0.2", or that nothing is known of it.
std::string ErrorText(const MeanWithError& mean, double scale, int digits) {
  if (!mean.error) return "of one row";
  return fmt::format("standard error {:.{}f}", scale * *mean.error, digits);
}

}  // namespace

std::string StepsText(const QualityReceipt& receipt) {
  return fmt::format(
      "the full cache's likeliest token {:.1f} % of the time ({}), divergence {:.4f} nats a token "
      "({}); {} tokens of {} rows",
      100.0 * receipt.agreement.mean, ErrorText(receipt.agreement, 100.0, 1),
      receipt.divergence.mean, ErrorText(receipt.divergence, 1.0, 4),
      GroupedText(receipt.num_tokens), GroupedText(receipt.num_rows));
}

std::string LengthsText(const AnswerLengths& lengths) {
  return fmt::format(
      "{:.1f} tokens in the mean, {:.1f} with the full cache (difference {:+.1f}, {})", lengths.own,
      lengths.full, lengths.difference.mean, ErrorText(lengths.difference, 1.0, 1));
}

std::string QualityWarning(const QualityReceipt& receipt) {
  const auto& [mean, error] = receipt.divergence;
  if (mean - error.value_or(0.0) <= kLossWithoutWarning) return "";
  return fmt::format(
      "this KV policy makes answers of the full cache {:.0f} % more perplexing, and its own next "
      "token another one {:.0f} % of the time; give a larger --kv-budget, --kv-bits 8,4, or the "
      "budgets that spillway calibrate finds",
      100.0 * std::expm1(mean), 100.0 * (1.0 - receipt.agreement.mean));
}

}  // namespace spillway
