#include "src/report/quality_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace spillway {
namespace {

using ::testing::EndsWith;
using ::testing::IsEmpty;
using ::testing::Not;

QualityReceipt Losing(double divergence) {
  QualityReceipt receipt;
  receipt.agreement = {0.7, 0.01};
  receipt.divergence = {divergence, 0.01};
  return receipt;
}

KvPolicy H2o() {
  KvPolicy kv;
  kv.kind = KvPolicyKind::kH2o;
  return kv;
}

TEST(QualityTextTest, WarnsOfWhatIsBeyondItsError) {
  EXPECT_THAT(QualityWarning(Losing(0.055), H2o(), 16), IsEmpty());
  EXPECT_THAT(QualityWarning(Losing(0.065), H2o(), 16), Not(IsEmpty()));
}

// Advice names what the run's KV leaves to be changed, and nothing that it has already.
TEST(QualityTextTest, AdvisesWhatTheRunDoesNotHave) {
  EXPECT_THAT(
      QualityWarning(Losing(0.5), H2o(), 16),
      EndsWith("; give a larger --kv-budget, or the budgets that spillway calibrate finds"));
  EXPECT_THAT(QualityWarning(Losing(0.5), {}, 4), EndsWith("; give --kv-bits 8,4"));
  EXPECT_THAT(QualityWarning(Losing(0.5), {}, {8, 4}), EndsWith("; give --kv-bits 8"));
  EXPECT_THAT(QualityWarning(Losing(0.5), {}, 8), EndsWith("; give --kv-bits 16"));
  KvPolicy calibrated = H2o();
  calibrated.head_budgets = {{{}}};
  EXPECT_THAT(QualityWarning(Losing(0.5), calibrated, {8, 4}),
              EndsWith("or for a lower --max-loss, or --kv-bits 8"));
}

}  // namespace
}  // namespace spillway
