// A cache of fixed size on the GPU: compaction and decode steps against their oracles.
#include <algorithm>
#include <cmath>

#include "kernels/budget_attention.h"
#include "kernels/kv_compact.h"
#include "kernels/kv_eviction.h"
#include "spillway/kv_block.h"
#include "tests/gpu/gpu_test_util.h"
#include "tests/kernels/kernel_test_util.h"

namespace spillway::kernels {
namespace {

struct Shape {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
};
constexpr Shape kShapes[] = {{4, 4, 64}, {3, 3, 80}, {8, 2, 128}, {5, 1, 24}};
constexpr KvPolicyKind kKinds[] = {KvPolicyKind::kH2o, KvPolicyKind::kWindow,
                                   KvPolicyKind::kH2oFlexgen};

int64_t SlotsFor(int64_t tokens) {
  return (tokens + kKvBlockSlots - 1) / kKvBlockSlots * kKvBlockSlots;
}

KvKeep KeepFor(KvPolicyKind kind) {
  return kind == KvPolicyKind::kWindow ? KvKeep{4, 0, 30} : KvKeep{0, 17, 18};
}

class BudgetTest : public GpuTest {
 protected:
  // 16-bit elements that are finite in fp16 and bf16.
  static std::vector<std::byte> RandomCache(int64_t bytes, uint32_t seed) {
    AlignedBytes words = RandomWeights(bytes / 2, DType::kF16, seed);
    return {words.data(), words.data() + bytes};
  }
};

TEST_F(BudgetTest, CompactionIsExact) {
  for (const Shape& shape : kShapes) {
    for (const KvPolicyKind kind : kKinds) {
      const KvKeep keep = KeepFor(kind);
      const std::vector<int64_t> lengths = {1, 34, 35, 36, 255, 256, 257, 700};
      int64_t num_slots = 0;
      for (const int64_t tokens : lengths) num_slots += SlotsFor(tokens);
      const int64_t slot_bytes = KvSlotBytes(shape.num_kv_heads, shape.head_dim);
      GpuArray<std::byte> from(RandomCache(num_slots * slot_bytes, 1), stream());
      std::vector<float> values = RandomFloats(shape.num_heads * num_slots, 2);
      for (float& value : values) value = std::round(value * 4.0F);  // many are equal
      GpuArray<float> scores(values, stream());
      const int64_t slots = SlotsFor(keep.slots() + 1);
      const int64_t row_bytes =
          slots / kKvBlockSlots * KvBlockBytesWithState(shape.num_kv_heads, shape.head_dim);
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
        slot += SlotsFor(tokens);
      }
      KvCompactArgs args{rows,          kind, num_slots, shape.num_heads, shape.num_kv_heads,
                         shape.head_dim};
      KvCompactRef(args);
      GpuArray<KvCompactRow> list(gpu_rows, stream());
      const auto places = static_cast<size_t>(shape.num_kv_heads * num_slots);
      GpuArray<float> sums(std::vector<float>(places), stream());
      GpuArray<int32_t> kept(std::vector<int32_t>(places), stream());
      args.rows = list.span();
      KvCompactAsync({args, from.data(), num_slots, sums.data(), kept.data()}, stream());
      Finish();
      EXPECT_EQ(to.Download(), expected);
    }
  }
}

// Rows at different fill, through steps in which the cache fills up and tokens go.
class Steps {
 public:
  Steps(const Shape& shape, KvPolicyKind kind, DType dtype, Stream& stream)
      : shape_(shape), kind_(kind), dtype_(dtype), stream_(stream) {
    const int64_t slots = SlotsFor(KeepFor(kind).slots() + 1);
    for (const int64_t held : {1, 20, 33, 34}) {
      BudgetAttentionRow row;
      row.num_slots = slots;
      row.num_held = held;
      row.position = held;
      row.keep = KeepFor(kind);
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
    args.kv_dtype = dtype_;
    args.kind = kind_;
    const auto point = [&](const float* base, float* to) {
      args.q = base;
      args.k = base + q;
      args.v = base + q + kv;
      args.out = to;
    };
    point(qkv.host().data(), out.data());
    for (size_t row = 0; row < rows_.size(); ++row) rows_[row].kv = caches_[row].data();
    args.rows = rows_;
    BudgetAttentionRef(args);

    for (size_t row = 0; row < rows_.size(); ++row) rows_[row].kv = gpu_caches_[row]->data();
    GpuArray<BudgetAttentionRow> list(rows_, stream_);
    constexpr int64_t kStride = 64;
    GpuArray<float> weights(
        std::vector<float>(static_cast<size_t>(num_rows * shape_.num_heads * kStride)), stream_);
    point(qkv.data(), gpu_out.data());
    args.rows = list.span();
    BudgetAttentionAsync({args, weights.data(), kStride}, stream_);
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
    const int64_t data_bytes = KvBlockBytes(shape_.num_kv_heads, shape_.head_dim);
    const int64_t block_bytes = KvBlockBytesWithState(shape_.num_kv_heads, shape_.head_dim);
    const int64_t run_bytes = kKvBlockSlots * 4;  // scores, or positions, of one head
    for (size_t row = 0; row < rows_.size(); ++row) {
      const std::vector<std::byte>& gpu = gpu_caches_[row]->Download();
      for (int64_t at = 0; at < static_cast<int64_t>(gpu.size()); at += block_bytes) {
        const auto same = [&](int64_t begin, int64_t bytes) {
          return std::equal(gpu.begin() + at + begin, gpu.begin() + at + begin + bytes,
                            caches_[row].begin() + at + begin);
        };
        EXPECT_TRUE(same(0, data_bytes)) << "K and V of row " << row;
        for (int64_t head = 0; head < shape_.num_kv_heads; ++head) {
          const int64_t scores = data_bytes + 2 * head * run_bytes;
          EXPECT_TRUE(same(scores + run_bytes, run_bytes)) << "positions of row " << row;
          for (int64_t score = at + scores; score < at + scores + run_bytes; score += 4) {
            EXPECT_NEAR(FloatAt(gpu, score), FloatAt(caches_[row], score), 1e-4F);
          }
        }
      }
    }
  }

 private:
  static float FloatAt(const std::vector<std::byte>& bytes, int64_t at) {
    float value;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    return value;
  }

  // Tokens 0 to held - 1, with scores.
  std::vector<std::byte> FilledCache(int64_t slots, int64_t held) const {
    const int64_t block_bytes = KvBlockBytesWithState(shape_.num_kv_heads, shape_.head_dim);
    const int64_t data_bytes = KvBlockBytes(shape_.num_kv_heads, shape_.head_dim);
    std::vector<std::byte> cache(static_cast<size_t>(slots / kKvBlockSlots * block_bytes));
    AlignedBytes words = RandomWeights(static_cast<int64_t>(cache.size()) / 2, dtype_, 11, 1.0F);
    std::copy_n(words.data(), cache.size(), cache.data());
    for (int64_t head = 0; head < shape_.num_kv_heads; ++head) {
      for (int64_t slot = 0; slot < slots; ++slot) {
        const int64_t score = slot / kKvBlockSlots * block_bytes + data_bytes +
                              (2 * head * kKvBlockSlots + slot % kKvBlockSlots) * 4;
        const auto value = static_cast<float>((slot * 7 + head * 3) % 11) + 0.1F;
        const auto position = static_cast<int32_t>(slot < held ? slot : -1);
        std::memcpy(cache.data() + score, &value, 4);
        std::memcpy(cache.data() + score + kKvBlockSlots * 4, &position, 4);
      }
    }
    return cache;
  }

  Shape shape_;
  KvPolicyKind kind_;
  DType dtype_;
  Stream& stream_;
  std::vector<BudgetAttentionRow> rows_;
  std::vector<std::vector<std::byte>> caches_;
  std::vector<std::unique_ptr<GpuArray<std::byte>>> gpu_caches_;
};

TEST_F(BudgetTest, StepsAgreeWithTheOracle) {
  for (const Shape& shape : kShapes) {
    for (const KvPolicyKind kind : kKinds) {
      for (const DType dtype : {DType::kF16, DType::kBF16}) {
        Steps steps(shape, kind, dtype, stream());
        for (uint32_t step = 0; step < 30; ++step) steps.Step(step);
        steps.Compare();
      }
    }
  }
}

}  // namespace
}  // namespace spillway::kernels
