#include "src/run/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "spillway/error.h"
#include "src/compute/host_device.h"
#include "src/requests/score_request.h"
#include "src/tokenizer/no_tokenizer.h"
#include "tests/expect_error.h"
#include "tests/plan_builder.h"
#include "tests/run/list_job.h"
#include "tests/trace_case.h"

namespace spillway {
namespace {

constexpr int64_t kVocab = 97;

PlanBuilder TinyBuilder(const BatchCapacity& batch, int64_t num_batches) {
  ModelShape shape = TinyShape(2);
  shape.vocab_size = kVocab;
  shape.eos = {96};
  PlanBuilder builder(shape);
  builder.Batches(batch, num_batches);
  return builder;
}

Plan TinyPlan(const BatchCapacity& batch, int64_t num_batches) {
  return TinyBuilder(batch, num_batches).Build();
}

// Counts up: the next token is the last one plus one. Checks what a real executor relies on.
class CountingExecutor final : public Executor {
 public:
  explicit CountingExecutor(const Plan& plan) : plan_(plan) {}

  void Compute(const Cursor& at, const PackedBatch& batch, const CellPlaces&) override {
    cells.push_back(at);
    ASSERT_FALSE(batch.rows.empty());
    ASSERT_LE(static_cast<int64_t>(batch.tokens.size()), plan_.batch.prompt_tokens);
    int64_t token = 0;
    std::set<int64_t> slots;
    for (std::size_t index = 0; index < batch.rows.size(); ++index) {
      SCOPED_TRACE(CaseOf("pass", at.pass, "layer", at.layer, "batch", at.batch, "row", index));
      const PackedRow& row = batch.rows[index];
      const KvPlace& place = batch.KvPlaceOf(index, 0);
      ASSERT_EQ(row.token_offset, token);
      token += row.num_new;
      ASSERT_LE(row.num_past + row.num_new, place.num_slots);
      ASSERT_LE(place.slot_begin + place.num_slots, plan_.batch.slots);
      for (int64_t slot = 0; slot < place.num_slots; ++slot) {
        ASSERT_TRUE(slots.insert(place.slot_begin + slot).second) << "two rows share a slot";
      }
      for (int64_t i = 0; i < row.num_new; ++i) {
        ASSERT_EQ(batch.positions[static_cast<std::size_t>(row.token_offset + i)],
                  row.num_past + i);
      }
    }
    ASSERT_EQ(token, static_cast<int64_t>(batch.tokens.size()));
    if (at.layer != static_cast<int64_t>(plan_.layers.size()) - 1) return;
    ASSERT_LE(batch.head.size(), plan_.batch.logits);
    const auto num_logits = static_cast<std::size_t>(batch.head.size());
    logits_.assign(num_logits * kVocab, 0.0F);
    for (std::size_t index = 0; index < num_logits; ++index) {
      const PackedBatch::WantedToken wanted =
          batch.Wanted(batch.head.begin + static_cast<int64_t>(index));
      const PackedRow& packed = batch.rows[wanted.row];
      ASSERT_GE(wanted.token, packed.token_offset + packed.num_new - packed.num_logits);
      ASSERT_LT(wanted.token, packed.token_offset + packed.num_new);
      const TokenId last = batch.tokens[static_cast<std::size_t>(wanted.token)];
      logits_[index * kVocab + static_cast<std::size_t>(last + 1)] = last == 50 ? kNan : 1.0F;
    }
  }
  std::span<float> Logits() override { return logits_; }

  std::vector<Cursor> cells;

 private:
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Plan& plan_;
  std::vector<float> logits_;
};

Request MakeRequest(int64_t line, int64_t prompt_tokens, TokenId last, int64_t max_tokens) {
  Request request;
  request.line = line;
  request.prompt.assign(static_cast<std::size_t>(prompt_tokens), 1);
  request.prompt.back() = last;
  request.sampling.max_tokens = max_tokens;
  return request;
}

EngineTotals RunSeen(const Plan& plan, CountingExecutor& executor, Job& job,
                     const ProgressFn& see) {
  const NoTokenizer tokenizer(kVocab);
  ThreadPool pool(1);
  HostDevice device;
  const Tiers tiers(plan, {}, device);
  Mover mover(plan, tiers);
  BlockBuilder blocks(plan, {&tokenizer, 0});
  EngineTotals totals;
  Engine(plan, mover, executor, pool, totals).Run(MakeSchedule(plan), blocks, job, see);
  return totals;
}

Trace RunJob(const Plan& plan, CountingExecutor& executor, Job& job) {
  return RunSeen(plan, executor, job, [](const WorkDone&) {}).trace;
}

// Work that is told of while rows come and go: it never shrinks, and ends with all of it.
TEST(EngineTest, TellsOfPromptsAndTokensAsTheyAreComputed) {
  const Plan plan = TinyPlan({3, 200, 150}, 2);
  std::vector<Request> requests;
  double prompt_tokens = 0.0;
  double decode_tokens = 0.0;
  for (int64_t line = 1; line <= 17; ++line) {
    requests.push_back(
        MakeRequest(line, 1 + line % 5, 50 + static_cast<TokenId>(line), 1 + line % 7));
    prompt_tokens += static_cast<double>(1 + line % 5);
    decode_tokens += static_cast<double>(line % 7);
  }
  ListJob job(requests);
  CountingExecutor executor(plan);
  WorkDone last;
  int64_t num_told = 0;
  const auto see = [&](const WorkDone& done) {
    EXPECT_GE(done.PromptTokens(), last.PromptTokens());
    EXPECT_GE(done.DecodeTokens(), last.DecodeTokens() - 1e-9);
    EXPECT_GT(done.pass.to_row_end, 0);
    EXPECT_LE(done.pass.cells, done.pass.num_cells);
    EXPECT_LT(done.pass.layer, plan.shape.num_layers);
    last = done;
    ++num_told;
  };
  const EngineTotals totals = RunSeen(plan, executor, job, see);
  EXPECT_GT(num_told, 17);
  EXPECT_EQ(totals.done.rows, 17);
  EXPECT_DOUBLE_EQ(totals.done.PromptTokens(), prompt_tokens);
  EXPECT_DOUBLE_EQ(totals.done.DecodeTokens(), decode_tokens);
}

TEST(EngineTest, EveryRowGetsItsOwnTokensForAnyBlockShape) {
  for (const int64_t rows : {1, 2, 5}) {
    for (const int64_t batches : {1, 2, 3}) {
      SCOPED_TRACE(CaseOf("rows", rows, "batches", batches));
      const Plan plan = TinyPlan({rows, 400, 300}, batches);
      std::vector<Request> requests;
      for (int64_t line = 1; line <= 23; ++line) {
        requests.push_back(
            MakeRequest(line, 1 + line * 7 % 40, static_cast<TokenId>(line), 1 + line % 9));
      }
      ListJob job(requests);
      CountingExecutor executor(plan);
      const Trace trace = RunJob(plan, executor, job);
      ASSERT_EQ(job.finished.size(), 23U);
      int64_t generated = 0;
      for (const auto& [line, completion] : job.finished) {
        ASSERT_EQ(static_cast<int64_t>(completion.tokens.size()), 1 + line % 9);
        generated += 1 + line % 9;
        for (std::size_t i = 0; i < completion.tokens.size(); ++i) {
          ASSERT_EQ(completion.tokens[i], line + 1 + static_cast<int64_t>(i)) << "line " << line;
        }
      }
      EXPECT_EQ(trace.prefill.generated_tokens + trace.decode.generated_tokens, generated);
    }
  }
}

// A text that counts up from `begin`, but for one token that is `wrong`, a 0.
Request CountedText(int64_t line, TokenId begin, int64_t num_tokens, int64_t wrong,
                    const ScorePrefill& prefill) {
  KnownTokens text;
  for (int64_t token = 0; token < num_tokens; ++token) {
    text.tokens.push_back(token == wrong ? 0 : begin + static_cast<TokenId>(token));
  }
  text.first = 1 + line % 3;
  Request request = ScoreRequest(std::move(text), prefill);
  request.line = line;
  return request;
}

TEST(EngineTest, ScoresAreTheSameForAnyBlockShapeAndFirstPass) {
  // All logits are 0 but one, which is 1.
  const float likely = 1.0F - std::log(96.0F + std::exp(1.0F));
  const float unlikely = -std::log(96.0F + std::exp(1.0F));
  for (const auto& [rows, logits, batches] :
       {std::tuple{1, 1, 1}, {1, 7, 2}, {4, 4, 1}, {4, 9, 3}, {23, 64, 1}}) {
    for (const std::optional<int64_t> prefill : {std::optional<int64_t>(), {1}, {3}}) {
      SCOPED_TRACE(CaseOf("rows", rows, "logits", logits, "batches", batches, "prefill", prefill));
      const Plan plan = TinyPlan({rows, 400, 400, logits}, batches);
      std::vector<Request> requests;
      for (int64_t line = 1; line <= 23; ++line) {
        requests.push_back(CountedText(line, 1, 5 + line, 4 + line % 5, {prefill, false}));
      }
      ListJob job(requests);
      CountingExecutor executor(plan);
      RunJob(plan, executor, job);
      ASSERT_EQ(job.finished.size(), 23U);
      for (const auto& [line, completion] : job.finished) {
        SCOPED_TRACE(CaseOf("line", line));
        const std::vector<float>& found = completion.scores.logprobs;
        const int64_t first = 1 + line % 3;
        ASSERT_EQ(static_cast<int64_t>(found.size()), 5 + line - first);
        const int64_t wrong = 4 + line % 5;
        EXPECT_EQ(completion.scores.greedy_match, wrong >= 5 + line);
        for (int64_t token = first; token < 5 + line; ++token) {
          const bool is_next = token != wrong && token != wrong + 1;
          EXPECT_NEAR(found[static_cast<std::size_t>(token - first)], is_next ? likely : unlikely,
                      1e-5)
              << "token " << token;
        }
      }
    }
  }
}

TEST(EngineTest, TextsAndPromptsRunSideBySide) {
  const Plan plan = TinyPlan({3, 64, 64, 5}, 1);
  ListJob job({CountedText(1, 1, 12, -1, {}), MakeRequest(2, 4, 10, 6),
               CountedText(3, 20, 9, -1, {2, false}), CountedText(4, 47, 6, -1, {})});
  CountingExecutor executor(plan);
  const Trace trace = RunJob(plan, executor, job);
  EXPECT_EQ(job.finished.at(1).scores.logprobs.size(), 10U);
  EXPECT_EQ(job.finished.at(2).tokens, (std::vector<TokenId>{11, 12, 13, 14, 15, 16}));
  EXPECT_TRUE(job.finished.at(3).scores.greedy_match);
  EXPECT_EQ(job.failed, (std::map<int64_t, std::string>{{4, "E-NONFINITE"}}));  // after token 50
  EXPECT_EQ(trace.prefill.prompt_tokens, 11 + 4 + 2 + 5);
}

TEST(EngineTest, WalksTheZigZag) {
  const Plan plan = TinyPlan({1, 100, 100}, 3);
  ListJob job({MakeRequest(1, 3, 1, 2), MakeRequest(2, 3, 1, 2), MakeRequest(3, 3, 1, 2)});
  CountingExecutor executor(plan);
  RunJob(plan, executor, job);
  const Schedule schedule = MakeSchedule(plan);
  Cursor expected;
  ASSERT_EQ(executor.cells.size(), 2U * 6 * 3);
  for (const Cursor& cell : executor.cells) {
    EXPECT_EQ(cell, expected);
    expected = schedule.Next(expected);
  }
}

TEST(EngineTest, ARowThatStopsIsNotComputedAgain) {
  const Plan plan = TinyPlan({2, 400, 300}, 1);
  ListJob job({MakeRequest(1, 3, 94, 50), MakeRequest(2, 3, 1, 6)});
  CountingExecutor executor(plan);
  const Trace trace = RunJob(plan, executor, job);
  EXPECT_EQ(job.finished.at(1).tokens, (std::vector<TokenId>{95, 96}));
  EXPECT_EQ(job.finished.at(1).finish_reason, FinishReason::kStop);
  EXPECT_EQ(trace.prefill.passes + trace.decode.passes, 6);
  EXPECT_EQ(trace.prefill.prompt_tokens, 6);
}

TEST(EngineTest, ANonFiniteRowFailsAlone) {
  const Plan plan = TinyPlan({3, 400, 300}, 1);
  ListJob job({MakeRequest(1, 3, 48, 9), MakeRequest(2, 3, 1, 9), MakeRequest(3, 3, 50, 9)});
  CountingExecutor executor(plan);
  RunJob(plan, executor, job);
  EXPECT_EQ(job.finished.size(), 1U);
  EXPECT_EQ(job.failed, (std::map<int64_t, std::string>{{1, "E-NONFINITE"}, {3, "E-NONFINITE"}}));
}

TEST(EngineTest, TooManyNonFiniteRowsEndTheRun) {
  const Plan plan = TinyPlan({8, 400, 300}, 1);
  std::vector<Request> requests;
  for (int64_t line = 1; line <= 200; ++line) requests.push_back(MakeRequest(line, 3, 50, 9));
  ListJob job(requests);
  CountingExecutor executor(plan);
  testing::ExpectError(ErrorCode::kNonFinite, "logits", [&] { RunJob(plan, executor, job); });
}

// What a bf16 model keeps may be too large for fp16.
TEST(EngineTest, NonFiniteRowsOfABf16ModelAreToldOfItsKvType) {
  Plan plan = TinyPlan({8, 400, 300}, 1);
  plan.shape.dtype = DType::kBF16;
  const auto expect = [&](std::string_view text) {
    std::vector<Request> requests;
    for (int64_t line = 1; line <= 200; ++line) requests.push_back(MakeRequest(line, 3, 50, 9));
    ListJob job(requests);
    CountingExecutor executor(plan);
    testing::ExpectError(ErrorCode::kNonFinite, text, [&] { RunJob(plan, executor, job); });
  };
  expect("give --kv-dtype bf16");
  plan.policy.kv_dtype = DType::kBF16;
  expect("check the model's weights");
}

// A job whose answers cannot be written any more.
class FullJob final : public ListJob {
 public:
  using ListJob::ListJob;
  void Finish(const Request&, const Completion&) override {
    if (++num_finished_ == 2) throw Error(ErrorCode::kDiskSpace, "full");
  }

 private:
  int num_finished_ = 0;
};

TEST(EngineTest, AnswersThatCannotBeWrittenEndTheRunWhileRowsRun) {
  const Plan plan = TinyPlan({8, 400, 300}, 1);
  // The batch has the longest first: rows that go on lie before and between those that end.
  FullJob job({MakeRequest(1, 20, 1, 30), MakeRequest(2, 9, 1, 3), MakeRequest(3, 8, 1, 30),
               MakeRequest(4, 7, 1, 3), MakeRequest(5, 6, 1, 3)});
  CountingExecutor executor(plan);
  testing::ExpectError(ErrorCode::kDiskSpace, "full", [&] { RunJob(plan, executor, job); });
}

void AddRow(RowBatch& batch, Request request, const Tokenizer& tokenizer) {
  auto row = std::make_unique<Row>(std::move(request), tokenizer, std::span<const TokenId>(), 0);
  row->places = batch.places().Take(ShapeOf(row->request));
  batch.Add(std::move(row));
}

TEST(BlockBuilderTest, LongestFirstAndWithinCapacity) {
  const Plan plan = TinyPlan({2, 40, 30}, 2);
  ListJob job({MakeRequest(1, 5, 1, 5), MakeRequest(2, 20, 1, 15), MakeRequest(3, 12, 1, 8),
               MakeRequest(4, 12, 1, 8), MakeRequest(5, 2, 1, 2)});
  const NoTokenizer tokenizer(kVocab);
  BlockBuilder blocks(plan, {&tokenizer, 0});
  std::vector<std::vector<int64_t>> lines;
  for (auto batches = blocks.Next(job); !batches.empty(); batches = blocks.Next(job)) {
    for (const RowBatch& batch : batches) {
      lines.emplace_back();
      for (const auto& row : batch.rows()) lines.back().push_back(row->request.line);
    }
  }
  // 2 asks for 35 of 40 slots, so 3 does not fit beside it; 3 and 4 fill 40.
  EXPECT_EQ(lines, (std::vector<std::vector<int64_t>>{{2}, {3, 4}, {1, 5}}));
}

TEST(BlockBuilderTest, NeverMakesMoreBatchesThanThePlanHolds) {
  Plan plan = TinyPlan({4, 40, 40}, 2000);
  plan.num_batches = 2;
  std::vector<Request> requests;
  for (int64_t line = 1; line <= 50; ++line) requests.push_back(MakeRequest(line, 20, 1, 20));
  ListJob job(requests);
  const NoTokenizer tokenizer(kVocab);
  BlockBuilder blocks(plan, {&tokenizer, 0});
  std::size_t rows = 0;
  for (auto batches = blocks.Next(job); !batches.empty(); batches = blocks.Next(job)) {
    ASSERT_LE(batches.size(), 2U);
    for (const RowBatch& batch : batches) rows += batch.rows().size();
  }
  EXPECT_EQ(rows, 50U);
}

TEST(BlockBuilderTest, ARowThatThePlanDoesNotHoldEndsTheRun) {
  for (const auto& [prompt, max_new] : {std::pair<int64_t, int64_t>{20, 21}, {31, 1}}) {
    const Plan plan = TinyPlan({4, 40, 30}, 2);
    ListJob job({MakeRequest(1, prompt, 1, max_new)});
    const NoTokenizer tokenizer(kVocab);
    BlockBuilder blocks(plan, {&tokenizer, 0});
    SCOPED_TRACE(CaseOf("prompt", prompt, "new tokens", max_new));
    testing::ExpectError(ErrorCode::kResume, "line 1", [&] { blocks.Next(job); });
  }
}

TEST(BlockBuilderTest, SlotsAreRoundedToTheirAlignment) {
  const Plan plan = TinyBuilder({4, 64, 64}, 1).SlotAlign(16).Build();
  ListJob job({MakeRequest(1, 3, 1, 2), MakeRequest(2, 3, 1, 14)});
  const NoTokenizer tokenizer(kVocab);
  BlockBuilder blocks(plan, {&tokenizer, 0});
  const auto batches = blocks.Next(job);
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0].rows()[0]->places.kv[0].num_slots, 32);
  EXPECT_EQ(batches[0].rows()[1]->places.kv[0].num_slots, 16);
  EXPECT_EQ(batches[0].rows()[1]->places.kv[0].slot_begin, 32);
}

TEST(BlockBuilderTest, EachClassOfBlocksHasItsOwnPlaces) {
  const Plan plan =
      TinyBuilder({4, 22, 64}, 1)
          .Budgets(KvPolicyKind::kH2o, {{{{0.5, 0}, {}, {}}, 22}, {{{0.0, 4}, {}, {}}, 15}})
          .Build();
  const NoTokenizer tokenizer(kVocab);
  RowBatch batch(0, plan, BatchPlaces(plan), Beginnings::kApart);
  const auto add = [&](int64_t line) { AddRow(batch, MakeRequest(line, 10, 1, 10), tokenizer); };
  add(1);
  add(2);
  // 10 of 20 tokens and the newest in the first block, 4 and the newest in the second.
  const std::vector<KvPlace>& second = batch.rows()[1]->places.kv;
  EXPECT_EQ(second[0].slot_begin, 11);
  EXPECT_EQ(second[0].num_slots, 11);
  EXPECT_EQ(second[0].row_tokens, 20);
  EXPECT_EQ(plan.RunKeep(0, 0, 20), (KvKeep{0, 5, 5}));
  EXPECT_EQ(second[1].slot_begin, 5);
  EXPECT_EQ(second[1].num_slots, 5);
  EXPECT_FALSE(batch.places().Admits({10, 10})) << "the second class has room, the first has none";
  batch.Remove([](const Row& row) { return row.request.line == 1; });
  EXPECT_TRUE(batch.places().Admits({10, 10}));
  add(3);
  batch.Pack();
  EXPECT_EQ(batch.packed().KvPlaceOf(1, 1).slot_begin, 0);
  EXPECT_EQ(batch.packed().KvPlaceOf(0, 0).slot_begin, 11);
}

TEST(EngineTest, WaitingRequestsTakeThePlacesOfRowsThatEnded) {
  const Plan plan = TinyPlan({2, 64, 64}, 1);
  // 1 runs for 12 passes; 2, 3 and 4 take turns beside it.
  ListJob job({MakeRequest(1, 4, 1, 12), MakeRequest(2, 4, 10, 4), MakeRequest(3, 4, 20, 4),
               MakeRequest(4, 4, 30, 4)});
  CountingExecutor executor(plan);
  const Trace trace = RunJob(plan, executor, job);
  EXPECT_EQ(job.finished.size(), 4U);
  EXPECT_EQ(trace.prefill.passes, 3);
  EXPECT_EQ(trace.prefill.passes + trace.decode.passes, 12);
  EXPECT_EQ(trace.num_blocks, 1);
}

TEST(RowBatchTest, PlacesAreFreedJoinedAndTakenAgain) {
  const Plan plan = TinyPlan({4, 64, 64}, 1);
  const NoTokenizer tokenizer(kVocab);
  RowBatch batch(0, plan, BatchPlaces(plan), Beginnings::kApart);
  const auto add = [&](int64_t line, int64_t slots) {
    AddRow(batch, MakeRequest(line, 2, 1, slots - 2), tokenizer);
  };
  const auto remove = [&](int64_t line) {
    batch.Remove([&](const Row& row) { return row.request.line == line; });
  };
  add(1, 16);
  add(2, 16);
  add(3, 32);
  EXPECT_FALSE(batch.places().Admits({1, 0}));
  remove(2);
  EXPECT_TRUE(batch.places().Admits({2, 14}));
  EXPECT_FALSE(batch.places().Admits({2, 15}));
  remove(1);
  EXPECT_TRUE(batch.places().Admits({2, 30}));
  add(4, 32);
  EXPECT_EQ(batch.rows().back()->places.kv[0].slot_begin, 0);
  EXPECT_FALSE(batch.places().Admits({1, 0}));
}

// Log places of a batch's rows on disk.
std::vector<int64_t> LogPlaces(RowBatch& batch) {
  batch.Pack();
  std::vector<int64_t> places;
  for (const PackedRow& row : batch.packed().rows) places.push_back(row.log_place);
  return places;
}

TEST(RowBatchTest, RowsOnDiskHavePlacesOfTheirOwnInTheLogUntilTheyEnd) {
  const Plan plan = TinyBuilder({4, 40, 40}, 1).KvIn(Tier::kDisk).KvLog(3, 3, {2, 3}).Build();
  const NoTokenizer tokenizer(kVocab);
  RowBatch batch(0, plan, BatchPlaces(plan), Beginnings::kApart);
  const auto add = [&](int64_t line) { AddRow(batch, MakeRequest(line, 2, 1, 2), tokenizer); };
  const RequestShape shape = {2, 2};
  for (const int64_t line : {1, 2, 3}) add(line);
  EXPECT_THAT(LogPlaces(batch), ::testing::ElementsAre(0, 1, 2));
  EXPECT_FALSE(batch.places().Admits(shape));  // slots are left, but no place
  batch.Remove([](const Row& row) { return row.request.line == 2; });
  EXPECT_TRUE(batch.places().Admits(shape));
  EXPECT_FALSE(batch.places().Admits({2, 4}));  // longer than what states are planned for
  add(4);
  EXPECT_THAT(LogPlaces(batch), ::testing::ElementsAre(0, 2, 1));
}

}  // namespace
}  // namespace spillway
