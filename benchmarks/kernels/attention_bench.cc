#include <fmt/core.h>

#include <cmath>

#include "benchmarks/kernels/attention_case.h"
#include "benchmarks/kernels/subjects.h"
#include "kernels/attention/attention.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kWidth = 2048;

// Buffers of one call, with the sizes of the case.
struct AttentionWork {
  const AttentionCase& of;
  int64_t heads = kWidth / of.head_dim;
  int64_t kv_heads = heads / of.group;
  int64_t kv_width = kWidth / of.group;
  int64_t slots = RoundUp(of.past + of.num_new, KvBlockSlots(of.kv_bits));
  int64_t row_bytes = slots * KvSlotBytes(kv_heads, of.head_dim, of.kv_bits);
  int64_t tokens = of.num_rows * of.num_new;
  Bytes kv = RandomBytes(of.num_rows * row_bytes / 2, DType::kF16);
  Bytes qkv = RandomBytes(tokens * (kWidth + 2 * kv_width), DType::kF32);
  Bytes out = Allocate(tokens * kWidth * 4);
  Bytes scores = Allocate(of.scored ? of.num_rows * heads * slots * 4 : 64);
  std::vector<AttentionRow> rows{};

  AttentionArgs Args();
  // Multiply-adds of q k and p v over the visible tokens, two operations each.
  double Flops() const;
};

AttentionArgs AttentionWork::Args() {
  rows.clear();
  for (int64_t row = 0; row < of.num_rows; ++row) {
    float* of_row = reinterpret_cast<float*>(scores.get()) + row * heads * slots;
    rows.push_back({kv.get() + row * row_bytes, slots, of.past, of.num_new, row * of.num_new,
                    of.scored ? of_row : nullptr});
  }
  AttentionArgs args;
  args.q = reinterpret_cast<const float*>(qkv.get());
  args.k = args.q + kWidth;
  args.v = args.k + kv_width;
  args.qkv_stride = kWidth + 2 * kv_width;
  args.out = reinterpret_cast<float*>(out.get());
  args.out_stride = kWidth;
  args.rows = rows;
  args.num_heads = heads;
  args.num_kv_heads = kv_heads;
  args.head_dim = of.head_dim;
  args.scale = 1.0F / std::sqrt(static_cast<float>(of.head_dim));
  args.token_scores_stride = slots;
  args.kv_bits = of.kv_bits;
  return args;
}

double AttentionWork::Flops() const {
  const double visible = static_cast<double>(of.num_new) *
                         (static_cast<double>(of.past) + (static_cast<double>(of.num_new) + 1) / 2);
  return 4.0 * visible * static_cast<double>(of.num_rows * kWidth);
}

}  // namespace

void BenchAttentionCase(Bench& bench, const AttentionCase& of) {
  AttentionWork work{of};
  const AttentionArgs args = work.Args();
  const Options& options = bench.options();
  const int64_t workspace_bytes =
      AttentionWorkspaceBytesWithScores(work.slots, of.head_dim, options.num_threads, options.isa);
  const Bytes workspace = Allocate(workspace_bytes);
  const double seconds = bench.BestSeconds([&] {
    Attention(args, {workspace.get(), static_cast<size_t>(workspace_bytes)}, bench.pool(),
              options.isa);
  });
  bench.Print(
      {.op = NameWithBits(of.name, of.kv_bits),
       .shape = fmt::format("{}/{} x {}, past {}", work.heads, work.kv_heads, of.head_dim, of.past),
       .rows = work.tokens,
       .seconds = seconds,
       .bytes = static_cast<double>(of.num_rows * work.row_bytes),
       .flops = work.Flops()});
}

void BenchAttention(Bench& bench) {
  for (const KvBits kv_bits : kBenchedBits) {
    for (const int64_t head_dim : {64, 128}) {
      BenchAttentionCase(bench, {"decode", 64, 512, 1, head_dim, false, kv_bits});
      BenchAttentionCase(bench, {"decode", 16, 2000, 1, head_dim, false, kv_bits});
      BenchAttentionCase(bench, {"prefill", 1, 0, 512, head_dim, false, kv_bits});
      BenchAttentionCase(bench, {"prefill", 4, 0, 2000, head_dim, false, kv_bits});
      for (const int64_t group : {4, 8}) {
        BenchAttentionCase(bench, {"decode", 64, 2000, 1, head_dim, false, kv_bits, group});
        BenchAttentionCase(bench, {"prefill", 1, 0, 2000, head_dim, false, kv_bits, group});
      }
    }
  }
}

}  // namespace spillway::kernels
