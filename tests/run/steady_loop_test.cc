// The steady loop allocates nothing: real arithmetic, all three tiers, counted by operator new.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <tuple>
#include <vector>

#include "src/compute/host_device.h"
#include "src/requests/score_request.h"
#include "tests/policies/policy_test_util.h"
#include "tests/run/dummy_run.h"
#include "tests/run/list_job.h"
#include "tests/workload_of.h"

namespace {

std::atomic<int64_t> num_allocations = 0;

void* Allocate(std::size_t bytes, std::size_t align) {
  ++num_allocations;
  void* memory = std::aligned_alloc(align, (bytes + align - 1) / align * align);
  if (memory == nullptr) std::abort();
  return memory;
}

// Out of line: where GCC sees free() in a delete, it takes it for the wrong partner of new.
[[gnu::noinline]] void Free(void* memory) { std::free(memory); }

}  // namespace

void* operator new(std::size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t align) {
  return Allocate(bytes, static_cast<std::size_t>(align));
}
void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return Allocate(bytes, alignof(std::max_align_t));
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { Free(memory); }

namespace spillway {
namespace {

constexpr int64_t kRows = 4;
constexpr int64_t kBatches = 3;
constexpr int64_t kNewTokens = 40;

// Rows that sample, or that are told, as many tokens.
enum class RowKind { kSampled, kTold };

std::vector<Request> EqualRows(RowKind kind) {
  std::vector<Request> rows;
  for (int64_t line = 1; line <= kRows * kBatches; ++line) {
    const auto token = static_cast<TokenId>(line);
    Request& request = rows.emplace_back();
    if (kind == RowKind::kTold) {
      request = ScoreRequest({std::vector<TokenId>(10 + kNewTokens, token), 1, 0}, {10, false});
    } else {
      request.prompt.assign(10, token);
      request.sampling.max_tokens = kNewTokens;
      request.sampling.ignore_eos = true;
    }
    request.line = line;
  }
  return rows;
}

ModelShape SmallShape() {
  ModelShape shape = *BuiltInShape("opt-125m");
  shape.num_layers = 2;
  shape.vocab_size = 1000;
  return shape;
}

Plan MixedPlan(const DummyRun& dummy, KvPolicyKind kind, Tier device) {
  Machine machine;
  machine.device = device;
  Policy policy;
  const bool on_gpu = device == Tier::kGpu;
  policy.weight_frac = on_gpu ? testing::Share(0.3, 0.3) : testing::Share(0.0, 0.6);
  policy.kv_frac = policy.activation_frac =
      on_gpu ? testing::Share(0.25, 0.25) : testing::Share(0.0, 0.5);
  policy.gpu_batch_size = kRows;
  policy.num_gpu_batches = kBatches;
  policy.kv.kind = kind;
  policy.kv.budget.kept = {0.5, 0};
  return dummy.PlanFor(machine, WorkOf(kRows * kBatches, {10, kNewTokens, 10}), policy);
}

using Kinds = std::tuple<RowKind, KvPolicyKind, Tier>;

void ExpectSteady(const ModelShape& shape, const Kinds& kinds) {
  DummyRun dummy(shape, 2);
  const auto [row_kind, kv_kind, computes_on] = kinds;
  const Plan plan = MixedPlan(dummy, kv_kind, computes_on);
  EXPECT_EQ(plan.kv_log.exists(), UsesScores(kv_kind) && computes_on == Tier::kCpu);
  ListJob job(EqualRows(row_kind));
  // One call a cell; the count at the end of each pass.
  const int64_t pass_cells = static_cast<int64_t>(plan.layers.size()) * kBatches;
  int64_t num_cells = 0;
  std::array<int64_t, kNewTokens> allocations{};
  DummyRunOptions options;
  options.progress = [&](const WorkDone&) {
    if (++num_cells % pass_cells == 0) {
      allocations[static_cast<std::size_t>(num_cells / pass_cells - 1)] = num_allocations;
    }
  };
  HostDevice device;
  dummy.Run(plan, device, job, options);
  ASSERT_EQ(num_cells, pass_cells * kNewTokens);
  EXPECT_EQ(job.finished.size(), static_cast<std::size_t>(kRows * kBatches));
  EXPECT_TRUE(job.failed.empty()) << job.failed.begin()->second;
  // The first passes find the sizes of what is reused; the last one hands out the answers.
  for (std::size_t pass = 4; pass + 1 < allocations.size(); ++pass) {
    EXPECT_EQ(allocations[pass], allocations[pass - 1]) << "pass " << pass;
  }
}

class SteadyLoopTest : public ::testing::TestWithParam<Kinds> {};

TEST_P(SteadyLoopTest, ADecodePassAllocatesNothing) { ExpectSteady(SmallShape(), GetParam()); }

// Each row turns by frequencies of its own.
TEST(SteadyRotationTest, ADecodePassAllocatesNothing) {
  ModelShape shape = *BuiltInShape("pythia-70m");
  shape.num_layers = 2;
  shape.vocab_size = 1000;
  shape.rope.scaling.kind = RopeScalingKind::kDynamic;
  shape.rope.scaling.factor = 2.0;
  shape.rope.scaling.original_positions = 5;
  ExpectSteady(shape, {RowKind::kSampled, KvPolicyKind::kFull, Tier::kCpu});
}

INSTANTIATE_TEST_SUITE_P(Kinds, SteadyLoopTest,
                         ::testing::Combine(::testing::Values(RowKind::kSampled, RowKind::kTold),
                                            ::testing::Values(KvPolicyKind::kFull,
                                                              KvPolicyKind::kH2o,
                                                              KvPolicyKind::kWindow),
                                            ::testing::Values(Tier::kGpu, Tier::kCpu)));

}  // namespace
}  // namespace spillway
