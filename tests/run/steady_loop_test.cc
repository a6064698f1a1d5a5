// The steady loop allocates nothing: real arithmetic, all three tiers, counted by operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <tuple>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/matmul/matmul.h"
#include "spillway/plan.h"
#include "src/checkpoint/dummy.h"
#include "src/checkpoint/weight_map.h"
#include "src/compute/cpu_executor.h"
#include "src/compute/host_device.h"
#include "src/requests/score_request.h"
#include "src/run/engine.h"
#include "src/store/load_weights.h"
#include "src/store/make_store.h"
#include "src/tokenizer/no_tokenizer.h"
#include "tests/run/list_job.h"
#include "tests/temporary_folder.h"

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

PerTier<double> Shares(double gpu, double cpu, double disk) {
  PerTier<double> frac;
  frac[Tier::kGpu] = gpu;
  frac[Tier::kCpu] = cpu;
  frac[Tier::kDisk] = disk;
  return frac;
}

Plan MixedPlan(const ModelShape& shape, KvPolicyKind kind, Tier device) {
  Machine machine;
  machine.num_threads = 2;
  machine.device = device;
  for (const Tier tier : kAllTiers) machine.cap_bytes[tier] = int64_t{1} << 40;
  Workload work;
  work.num_requests = kRows * kBatches;
  work.sample.assign(static_cast<std::size_t>(work.num_requests), {10, kNewTokens, 10});
  work.longest = {10, kNewTokens, 10};
  Policy policy;
  const bool on_gpu = device == Tier::kGpu;
  policy.weight_frac = on_gpu ? Shares(0.3, 0.3, 0.4) : Shares(0.0, 0.6, 0.4);
  policy.kv_frac = policy.activation_frac =
      on_gpu ? Shares(0.25, 0.25, 0.5) : Shares(0.0, 0.5, 0.5);
  policy.gpu_batch_size = kRows;
  policy.num_gpu_batches = kBatches;
  policy.kv.kind = kind;
  policy.kv.budget.kept = {0.5, 0};
  return MakePlan(MakeModel(shape), machine, work, policy, HostDevice().needs());
}

using Kinds = std::tuple<RowKind, KvPolicyKind, Tier>;

class SteadyLoopTest : public ::testing::TestWithParam<Kinds> {};

TEST_P(SteadyLoopTest, ADecodePassAllocatesNothing) {
  const TemporaryFolder folder;
  const ModelShape shape = SmallShape();
  const auto [row_kind, kv_kind, computes_on] = GetParam();
  const Plan plan = MixedPlan(shape, kv_kind, computes_on);
  const auto checkpoint = MakeDummyCheckpoint(MakeModel(shape), 1);
  const WeightMap map = ResolveWeights(MakeModel(shape), *checkpoint);
  ThreadPool pool(2);
  const HostArena convert(1 << 20);
  const WeightReader reader(*checkpoint, map, NonFiniteWeights::kRefuse,
                            convert.View({0, convert.bytes()}), 2);
  EnsureStore({MakeModel(shape), "0123456789abcdef", reader, {}}, folder / "weights.store", pool,
              {}, {});
  DiskOptions disk;
  disk.folder = folder.path();
  disk.store = folder / "weights.store";
  HostDevice device;
  const Tiers tiers(plan, disk, device);
  EXPECT_EQ(plan.kv_log.exists(), kv_kind != KvPolicyKind::kFull && computes_on == Tier::kCpu);
  for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
    LoadWeights(plan, tier, reader, tiers.arena(tier), pool);
  }
  Mover mover(plan, tiers);
  CpuExecutor executor(plan, tiers.arena(plan.device()), pool, kernels::BestIsa());
  const NoTokenizer tokenizer(shape.vocab_size);
  BlockBuilder blocks(plan, {&tokenizer, 0});
  ListJob job(EqualRows(row_kind));
  // One call a cell; the count at the end of each pass.
  const int64_t pass_cells = static_cast<int64_t>(plan.layers.size()) * kBatches;
  int64_t num_cells = 0;
  std::array<int64_t, kNewTokens> allocations{};
  Engine(plan, mover, executor, pool).Run(MakeSchedule(plan), blocks, job, [&](const WorkDone&) {
    if (++num_cells % pass_cells == 0) {
      allocations[static_cast<std::size_t>(num_cells / pass_cells - 1)] = num_allocations;
    }
  });
  ASSERT_EQ(num_cells, pass_cells * kNewTokens);
  EXPECT_EQ(job.finished.size(), static_cast<std::size_t>(kRows * kBatches));
  EXPECT_TRUE(job.failed.empty()) << job.failed.begin()->second;
  // The first passes find the sizes of what is reused; the last one hands out the answers.
  for (std::size_t pass = 4; pass + 1 < allocations.size(); ++pass) {
    EXPECT_EQ(allocations[pass], allocations[pass - 1]) << "pass " << pass;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SteadyLoopTest,
                         ::testing::Combine(::testing::Values(RowKind::kSampled, RowKind::kTold),
                                            ::testing::Values(KvPolicyKind::kFull,
                                                              KvPolicyKind::kH2o,
                                                              KvPolicyKind::kWindow),
                                            ::testing::Values(Tier::kGpu, Tier::kCpu)));

}  // namespace
}  // namespace spillway
