#include "src/report/eta.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

// Two blocks of 10 rows: prompts of 10 tokens in 20 s, then 8 passes of 4 s each.
ExpectedWork TwoBlocks() {
  ExpectedWork work;
  work.rows = 20;
  work.prompt_tokens = 200.0;
  work.decode_tokens = 160.0;
  CoursePoint at;
  for (int block = 0; block < 2; ++block) {
    at.prompt_tokens += 100.0;
    at.prefill_s += 20.0;
    work.course.push_back(at);
    for (int pass = 0; pass < 8; ++pass) {
      at.decode_tokens += 10.0;
      at.decode_s += 4.0;
      work.course.push_back(at);
    }
  }
  return work;
}

ExpectedWork OfUnknownRates() {
  ExpectedWork work = TwoBlocks();
  work.course.clear();
  return work;
}

// One cell of four of a pass that begins ten prompts, behind so many tokens.
WorkDone InPrefill(int64_t prompt_tokens, int64_t decode_tokens, int64_t cells) {
  WorkDone done;
  done.rows_running = 10;
  done.prompt_tokens = prompt_tokens;
  done.decode_tokens = decode_tokens;
  done.pass = {.prompt_tokens = 100, .cells = cells, .num_cells = 4, .to_row_end = 9};
  return done;
}

WorkDone InDecode(int64_t prompt_tokens, int64_t decode_tokens, int64_t cells) {
  WorkDone done = InPrefill(prompt_tokens, decode_tokens, cells);
  done.pass.prompt_tokens = 0;
  done.pass.decode_tokens = 10;
  done.pass.to_row_end = 8 - decode_tokens / 10 % 8;
  return done;
}

TEST(Eta, OnCourseWhatIsLeftOfItIsLeft) {
  Eta eta(TwoBlocks());
  eta.See(InPrefill(0, 0, 1), 5.0);
  EXPECT_NEAR(*eta.LeftSeconds(), 99.0, 1e-9);
  eta.See(InPrefill(0, 0, 4), 20.0);
  EXPECT_NEAR(*eta.LeftSeconds(), 84.0, 1e-9);
  eta.See(InDecode(100, 0, 2), 22.0);
  EXPECT_NEAR(*eta.LeftSeconds(), 82.0, 1e-9);
}

TEST(Eta, EachPhaseHasItsOwnPace) {
  Eta eta(TwoBlocks());
  eta.See(InPrefill(0, 0, 4), 20.0);  // as foreseen
  for (int64_t pass = 0; pass < 8; ++pass)
    eta.See(InDecode(100, 10 * pass, 4), 20.0 + 8.0 * static_cast<double>(pass + 1));
  EXPECT_NEAR(*eta.LeftSeconds(), 20.0 + 64.0, 3.0);  // decode goes half as fast
}

TEST(Eta, NothingIsLeftAtTheEnd) {
  Eta eta(TwoBlocks());
  eta.See(InDecode(200, 150, 4), 104.0);
  EXPECT_NEAR(*eta.LeftSeconds(), 0.0, 1e-9);
  eta.See(InDecode(230, 160, 4), 110.0);  // more than was foreseen
  EXPECT_NEAR(*eta.LeftSeconds(), 0.0, 1e-9);
}

// Rows that end early leave less to do.
TEST(Eta, TokensThatAreNotNeededCountAsDone) {
  Eta eta(TwoBlocks());
  eta.See(InPrefill(0, 0, 4), 20.0);
  eta.See(InDecode(100, 70, 4), 24.0);
  EXPECT_LT(*eta.LeftSeconds(), 52.0);
}

TEST(EtaWithoutRates, IsUnknownUntilBothPhasesAreSteady) {
  Eta eta(OfUnknownRates());
  eta.See(InPrefill(0, 0, 4), 20.0);
  EXPECT_FALSE(eta.LeftSeconds());
  eta.See(InDecode(100, 0, 4), 24.0);
  EXPECT_FALSE(eta.LeftSeconds());
  eta.See(InDecode(100, 10, 4), 28.0);
  eta.See(InDecode(100, 20, 4), 32.0);
  EXPECT_NEAR(*eta.LeftSeconds(), 20.0 + 13 * 4.0, 1e-9);
}

TEST(EtaWithoutRates, AJobWithoutDecodeNeedsNone) {
  ExpectedWork work = OfUnknownRates();
  work.decode_tokens = 0.0;
  Eta eta(work);
  eta.See(InPrefill(0, 0, 2), 10.0);
  EXPECT_NEAR(*eta.LeftSeconds(), 30.0, 1e-9);
}

TEST(Eta, KnowsWhenTheNextRowEnds) {
  Eta eta(OfUnknownRates());
  eta.See(InPrefill(0, 0, 1), 5.0);
  EXPECT_FALSE(eta.SecondsToRowEnd());  // nothing is known of decode
  for (int64_t cells = 2; cells <= 4; ++cells)
    eta.See(InPrefill(0, 0, cells), 5.0 * static_cast<double>(cells));
  eta.See(InDecode(100, 0, 4), 24.0);
  eta.See(InDecode(100, 10, 1), 25.0);
  EXPECT_NEAR(*eta.SecondsToRowEnd(), 3.0 + 6 * 4.0, 1e-9);
  Eta foreseen(TwoBlocks());
  foreseen.See(InPrefill(0, 0, 1), 5.0);
  EXPECT_NEAR(*foreseen.SecondsToRowEnd(), 15.0 + 8 * 4.0, 1e-6);
}

TEST(ExpectedOf, ASampleStandsForAllRequests) {
  Workload work;
  work.num_requests = 100;
  work.sample = {{10, 5}, {30, 0}};
  const ExpectedWork expected = ExpectedOf(work, std::nullopt);
  EXPECT_EQ(expected.rows, 100);
  EXPECT_DOUBLE_EQ(expected.prompt_tokens, 2000.0);
  EXPECT_DOUBLE_EQ(expected.decode_tokens, 200.0);
}

}  // namespace
}  // namespace spillway
