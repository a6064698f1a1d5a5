// A cache of fixed size on the GPU: compaction and decode steps against their oracles.
#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/attention/budget_attention.h"
#include "kernels/attention/kv_compact.h"
#include "kernels/convert/convert.h"
#include "kernels/kv/kv_code.h"
#include "kernels/kv/kv_eviction.h"
#include "kernels/kv/kv_head.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"
#include "tests/gpu/gpu_test_util.h"
#include "tests/kernels/kernel_test_util.h"
#include "tests/kernels/mean_table.h"
#include "tests/kernels/turn_table.h"
#include "tests/trace_case.h"

namespace spillway::kernels {
namespace {

struct Shape {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
};
#if defined(SPILLWAY_SOFT_GPU)
constexpr Shape kShapes[] = {{2, 1, 64}, {1, 1, 80}, {4, 2, 128}, {1, 1, 256}};
#else
constexpr Shape kShapes[] = {{4, 4, 64}, {3, 3, 80}, {8, 2, 128}, {5, 1, 24}, {2, 1, 256}};
#endif
// A policy, and the window of the model's layer.
struct Rule {
  KvPolicyKind kind;
  int64_t window = 0;
  KvKeep keep = {};  // more tokens than the other cases'; none: as these
};
constexpr Rule kRules[] = {{KvPolicyKind::kH2o},
                           {KvPolicyKind::kWindow},
                           {KvPolicyKind::kH2oFlexgen},
                           {KvPolicyKind::kH2o, 40}};

// Shapes of case `number`: one in turn where a GPU in software is slow.
std::span<const Shape> ShapesOf([[maybe_unused]] size_t number) {
#if defined(SPILLWAY_SOFT_GPU)
  return std::span(kShapes).subspan(number % std::size(kShapes), 1);
#else
  return kShapes;
#endif
}

constexpr int64_t kBlockFill = 96;  // of the caches, as of rows on disk

int64_t SlotsFor(int64_t tokens, KvBits bits) { return RoundUp(tokens, KvBlockSlots(bits)); }

KvKeep KeepFor(const Rule& rule) {
  if (rule.keep.slots() > 0) return rule.keep;
  return rule.kind == KvPolicyKind::kWindow ? KvKeep{4, 0, 30} : KvKeep{0, 17, 18, rule.window};
}

// Tokens in the caches before the first step.
std::vector<int64_t> HeldFor(const Rule& rule) {
  if (rule.keep.slots() > 0) return {rule.keep.slots() - 9, rule.keep.slots()};
  return {1, 20, 33, 34};
}

class BudgetTest : public GpuTest {
 protected:
  // 16-bit elements that are finite in fp16 and bf16.
  static std::vector<std::byte> RandomCache(int64_t bytes, uint32_t seed) {
    AlignedBytes words = RandomWeights(bytes / 2, DType::kF16, seed);
    return {words.data(), words.data() + bytes};
  }

  void CompareCompaction(KvBits bits);
};

TEST_F(BudgetTest, CompactionIsExact) {
  for (const KvStorage& storage : kKvStorages) CompareCompaction(storage.bits);
}

void BudgetTest::CompareCompaction(KvBits bits) {
  for (const Shape& shape : kShapes) {
    for (const Rule& rule : kRules) {
      SCOPED_TRACE(CaseOf("heads", shape.num_heads, "KV heads", shape.num_kv_heads, "head_dim",
                          shape.head_dim, "policy", KvPolicyName(rule.kind), "bits", bits.key,
                          "and", bits.value));
      const KvKeep keep = KeepFor(rule);
      const std::vector<int64_t> lengths = {1, 34, 35, 36, 255, 256, 257, 700};
      int64_t num_slots = 0;
      for (const int64_t tokens : lengths) num_slots += SlotsFor(tokens, bits);
      const int64_t slot_bytes = KvSlotBytes(shape.num_kv_heads, shape.head_dim, bits);
      GpuArray<std::byte> from(RandomCache(num_slots * slot_bytes, 1), stream());
      std::vector<float> values = RandomFloats(shape.num_heads * num_slots, 2);
      for (float& value : values) value = std::round(value * 4.0F);  // many are equal
      GpuArray<float> scores(values, stream());
      const int64_t slots = SlotsFor(keep.slots() + 1, bits);
      const int64_t row_bytes =
          slots * (KvSlotBytesWithState(shape.num_kv_heads, shape.head_dim, bits) +
                   kBlockFill / KvBlockSlots(bits));
      std::vector<std::byte> expected(lengths.size() * static_cast<size_t>(row_bytes),
                                      std::byte{0x5A});
      GpuArray<std::byte> to(expected, stream());
      std::vector<KvCompactRow> rows;
      std::vector<KvCompactRow> gpu_rows;
      int64_t slot = 0;
      for (const int64_t tokens : lengths) {
        const auto row = static_cast<int64_t>(rows.size());
        rows.push_back({from.host().data() + slot * slot_bytes, scores.host().data() + slot, tokens,
                        expected.data() + row * row_bytes, slots, keep});
        gpu_rows.push_back({from.data() + slot * slot_bytes, scores.data() + slot, tokens,
                            to.data() + row * row_bytes, slots, keep});
        gpu_rows.back().column = slot;
        if (tokens % 2 == 1 && tokens > kPrefixStep) {  // its first tokens are elsewhere
          rows.back().prefix = from.host().data();
          gpu_rows.back().prefix = from.data();
          rows.back().prefix_tokens = gpu_rows.back().prefix_tokens = kPrefixStep;
        }
        slot += SlotsFor(tokens, bits);
      }
      KvCompactArgs args{rows,           rule.kind, num_slots, shape.num_heads, shape.num_kv_heads,
                         shape.head_dim, bits,      0,         kBlockFill};
      KvCompactRef(args);
      GpuArray<KvCompactRow> list(gpu_rows, stream());
      const auto places = static_cast<size_t>(shape.num_kv_heads * num_slots);
      GpuArray<float> sums(std::vector<float>(places), stream());
      GpuArray<int32_t> kept(std::vector<int32_t>(places), stream());
      args.rows = list.span();
      KvCompactAsync({args, num_slots, sums.data(), kept.data()}, stream());
      Finish();
      EXPECT_EQ(to.Download(), expected);
    }
  }
}

// Rows at different fill, through steps in which the cache fills up and tokens go.
class Steps {
 public:
  // `sinks`: [num_heads], or none. `turns`: of a rolling cache; null: it does not roll. `means`: of
  // centred keys; null: they are not.
  Steps(const Shape& shape, const Rule& rule, const KvStorage& storage, Stream& stream,
        const std::vector<float>& sinks = {}, const TurnTable* turns = nullptr,
        const MeanTable* means = nullptr)
      : shape_(shape),
        kind_(rule.kind),
        storage_(storage),
        stream_(stream),
        sinks_(sinks, stream),
        turns_(turns),
        table_(turns == nullptr ? std::vector<float>() : turns->table, stream),
        means_(means),
        mean_table_(means == nullptr ? std::vector<float>() : means->OnGpu(shape.head_dim),
                    stream) {
    const int64_t slots = SlotsFor(KeepFor(rule).slots() + 1, storage.bits);
    for (const int64_t held : HeldFor(rule)) {
      BudgetAttentionRow row;
      row.num_slots = slots;
      row.num_held = held;
      row.position = held;
      row.keep = KeepFor(rule);
      row.newest_place = row.keep.slots() + held % 7;
      row.token_offset = static_cast<int64_t>(rows_.size());
      rows_.push_back(row);
      caches_.push_back(FilledCache(slots, held));
      gpu_caches_.push_back(std::make_unique<GpuArray<std::byte>>(caches_.back(), stream));
    }
  }

  void Step(uint32_t seed) {
    const int64_t q = shape_.num_heads * shape_.head_dim;
    const int64_t kv = shape_.num_kv_heads * shape_.head_dim;
    const auto num_rows = static_cast<int64_t>(rows_.size());
    GpuArray<float> qkv(RandomFloats(num_rows * (q + 2 * kv), seed), stream_);
    std::vector<float> out(static_cast<size_t>(num_rows * q), kPoison);
    GpuArray<float> gpu_out(out, stream_);
    BudgetAttentionArgs args;
    args.qkv_stride = q + 2 * kv;
    args.out_stride = q;
    args.num_heads = shape_.num_heads;
    args.num_kv_heads = shape_.num_kv_heads;
    args.head_dim = shape_.head_dim;
    args.scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim));
    args.kv_dtype = storage_.dtype;
    args.kv_bits = storage_.bits;
    args.kv_block_fill = kBlockFill;
    args.kind = kind_;
    const auto point = [&](const float* base, float* to) {
      args.q = base;
      args.k = base + q;
      args.v = base + q + kv;
      args.out = to;
    };
    const bool has_sinks = !sinks_.host().empty();
    args.sinks = has_sinks ? sinks_.host().data() : nullptr;
    if (turns_ != nullptr) args.turns = turns_->turns();
    if (means_ != nullptr) args.means = means_->means();
    point(qkv.host().data(), out.data());
    for (size_t row = 0; row < rows_.size(); ++row) rows_[row].kv = caches_[row].data();
    args.rows = rows_;
    BudgetAttentionRefUnrounded(args);

    for (size_t row = 0; row < rows_.size(); ++row) rows_[row].kv = gpu_caches_[row]->data();
    GpuArray<BudgetAttentionRow> list(rows_, stream_);
    const int64_t stride = RoundUp(rows_.front().keep.slots() + 1, 64);
    GpuArray<float> weights(
        std::vector<float>(static_cast<size_t>(num_rows * shape_.num_heads * stride)), stream_);
    GpuArray<int32_t> turn_rows(
        std::vector<int32_t>(static_cast<size_t>(num_rows * shape_.num_kv_heads * stride)),
        stream_);
    args.sinks = has_sinks ? sinks_.data() : nullptr;
    if (turns_ != nullptr) args.turns.table = table_.data();
    if (means_ != nullptr) args.means.table = mean_table_.data();
    point(qkv.data(), gpu_out.data());
    args.rows = list.span();
    BudgetAttentionAsync({args, weights.data(), stride, turn_rows.data()}, stream_);
    gpu_out.Download();
    for (size_t at = 0; at < out.size(); ++at) {
      ASSERT_NEAR(gpu_out.host()[at], out[at], 2e-4F) << at;
    }
    for (BudgetAttentionRow& row : rows_) {
      row.num_held = HeldAfterStep(row.keep, row.num_held);
      ++row.position;
    }
  }

  // K, V and positions to the bit; scores to their rounding.
  void Compare() {
    for (size_t row = 0; row < rows_.size(); ++row) {
      std::vector<std::byte> gpu = gpu_caches_[row]->Download();
      std::vector<std::byte>& expected = caches_[row];
      for (int64_t head = 0; head < shape_.num_kv_heads; ++head) {
        const KvHead<std::byte> of_gpu = Head(gpu, head);
        const KvHead<std::byte> of_oracle = Head(expected, head);
        for (int64_t slot = 0; slot < rows_[row].num_slots; ++slot) {
          EXPECT_EQ(*of_gpu.Position(slot), *of_oracle.Position(slot)) << "row " << row;
          EXPECT_NEAR(*of_gpu.Score(slot), *of_oracle.Score(slot), 1e-4F) << "row " << row;
          *of_gpu.Score(slot) = *of_oracle.Score(slot);
        }
      }
      EXPECT_EQ(gpu, expected) << "K and V of row " << row;
    }
  }

 private:
  KvHead<std::byte> Head(std::vector<std::byte>& cache, int64_t head) const {
    return {cache.data(),
            shape_.num_kv_heads,
            shape_.head_dim,
            head,
            KvBlockBytesWithState(shape_.num_kv_heads, shape_.head_dim, storage_.bits) + kBlockFill,
            storage_.bits};
  }

  // Tokens 0 to held - 1, with scores.
  std::vector<std::byte> FilledCache(int64_t slots, int64_t held) const {
    const int64_t bytes =
        slots * (KvSlotBytesWithState(shape_.num_kv_heads, shape_.head_dim, storage_.bits) +
                 kBlockFill / KvBlockSlots(storage_.bits));
    AlignedBytes words = RandomWeights(bytes / 2, storage_.dtype, 11, 1.0F);
    std::vector<std::byte> cache(words.data(), words.data() + bytes);
    for (int64_t head = 0; head < shape_.num_kv_heads; ++head) {
      const KvHead<std::byte> there = Head(cache, head);
      for (int64_t slot = 0; slot < slots; ++slot) {
        *there.Score(slot) = static_cast<float>((slot * 7 + head * 3) % 11) + 0.1F;
        *there.Position(slot) = static_cast<int32_t>(slot < held ? slot : -1);
        if (storage_.bits.coded()) SetRanges(there, slot);
      }
    }
    return cache;
  }

  // Codes may be any; what they are of must be numbers of usual size.
  static void SetRanges(const KvHead<std::byte>& head, int64_t slot) {
    const auto set = [&](std::byte* ranges, int64_t count, int bits) {
      const uint16_t range[2] = {FloatToHalf(-1.0F - 0.01F * static_cast<float>(slot)),
                                 FloatToHalf(2.0F / static_cast<float>(KvSteps(bits)))};
      for (int64_t group = 0; group < count; ++group)
        std::memcpy(ranges + group * kKvRangeStride, range, sizeof(range));
    };
    set(head.KeyRanges(slot), head.NumKeyRanges(), head.bits.key);
    set(head.ValueRanges(slot), head.NumValueRanges(), head.bits.value);
  }

  Shape shape_;
  KvPolicyKind kind_;
  KvStorage storage_;
  Stream& stream_;
  GpuArray<float> sinks_;
  const TurnTable* turns_;
  GpuArray<float> table_;
  const MeanTable* means_;
  GpuArray<float> mean_table_;
  std::vector<BudgetAttentionRow> rows_;
  std::vector<std::vector<std::byte>> caches_;
  std::vector<std::unique_ptr<GpuArray<std::byte>>> gpu_caches_;
};

// After 15 steps all four rows of a case evict.
void CompareSteps(Steps steps, uint32_t num_steps = 18) {
  for (uint32_t step = 0; step < num_steps; ++step) steps.Step(step);
  steps.Compare();
}

// Calls `compare` with each case and its number, from 1.
template <typename F>
void ForEachCase(F compare) {
  size_t number = 0;
  for (const Rule& rule : kRules) {
    for (const KvStorage& storage : kKvStorages) {
      for (const Shape& shape : ShapesOf(number++)) {
        SCOPED_TRACE(storage.name() + ", head_dim " + std::to_string(shape.head_dim));
        compare(shape, rule, storage, number);
      }
    }
  }
}

TEST_F(BudgetTest, StepsAgreeWithTheOracle) {
  ForEachCase([&](const Shape& shape, const Rule& rule, const KvStorage& storage, size_t) {
    CompareSteps({shape, rule, storage, stream()});
  });
}

TEST_F(BudgetTest, StepsWithSinksAgreeWithTheOracle) {
  for (const Rule& rule : kRules)
    CompareSteps({{4, 2, 64}, rule, kKvStorages[0], stream(), {-1.0F, 2.0F, 0.0F, 1.0F}});
}

TEST_F(BudgetTest, RollingStepsAgreeWithTheOracle) {
  ForEachCase([&](const Shape& shape, const Rule& rule, const KvStorage& storage, size_t number) {
    const RopePairs pairs = number % 3 == 0 ? RopePairs::kNeighbours : RopePairs::kHalves;
    const int64_t dims = number % 2 == 0 ? shape.head_dim : shape.head_dim / 4 * 2;
    const TurnTable table(60, dims, pairs);
    CompareSteps({shape, rule, storage, stream(), {}, &table});
  });
}

TEST_F(BudgetTest, CentredStepsAgreeWithTheOracle) {
  ForEachCase([&](const Shape& shape, const Rule& rule, const KvStorage& storage, size_t) {
    if (storage.bits.key != 4) return;
    const MeanTable table(200, shape.num_kv_heads, shape.head_dim);
    CompareSteps({shape, rule, storage, stream(), {}, nullptr, &table});
  });
}

// Places are found in parts of 2,048 tokens.
TEST_F(BudgetTest, RollingStepsOverManyTokensAgreeWithTheOracle) {
  const Rule rule = {KvPolicyKind::kH2o, 0, {0, 2300, 150}};
  const TurnTable table(2460, 64, RopePairs::kHalves);
  CompareSteps({{2, 1, 64}, rule, kKvStorages[0], stream(), {}, &table}, 12);
}

}  // namespace
}  // namespace spillway::kernels
