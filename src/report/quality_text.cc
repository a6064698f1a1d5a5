#include "src/report/quality_text.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

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

// Ways to lose less with another KV than this.
std::string Advice(const KvPolicy& kv, KvBits bits) {
  const bool calibrated = !kv.head_budgets.empty() || !kv.layer_budgets.empty();
  std::string advice;
  if (calibrated) {
    advice = "budgets of spillway calibrate on this very job (--input), or for a lower --max-loss";
  } else if (kv.evicts()) {
    advice = "a larger --kv-budget, or the budgets that spillway calibrate finds";
  }
  if (!bits.coded()) return advice;
  const std::string_view wider = bits.key < 8     ? "--kv-bits 8,4"
                                 : bits.value < 8 ? "--kv-bits 8"
                                                  : "--kv-bits 16";
  return advice.empty() ? std::string(wider) : fmt::format("{}, or {}", advice, wider);
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

std::string QualityWarning(const QualityReceipt& receipt, const KvPolicy& kv, KvBits bits) {
  const auto& [mean, error] = receipt.divergence;
  if (mean - error.value_or(0.0) <= kLossWithoutWarning) return "";
  return fmt::format(
      "this KV policy makes answers of the full cache {:.0f} % more perplexing, and its own next "
      "token another one {:.0f} % of the time; give {}",
      100.0 * std::expm1(mean), 100.0 * (1.0 - receipt.agreement.mean), Advice(kv, bits));
}

}  // namespace spillway
