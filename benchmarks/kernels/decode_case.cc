#include "benchmarks/kernels/decode_case.h"

#include <cmath>

#include "kernels/attention/budget_attention.h"
#include "kernels/kv/kv_head.h"
#include "spillway/kv_block.h"

namespace spillway::kernels {

// Random halves are random codes, and as good as any for their min and scale.
DecodeWork::DecodeWork(Bench& bench, const DecodeCase& of)
    : bench_(bench),
      of_(of),
      row_bytes_(of.slots * (of.kind == KvPolicyKind::kFull ? KvSlotBytes : KvSlotBytesWithState)(
                                of.kv_heads, of.head_dim, of.kv_bits)),
      copies_(kFarBytes / (of.rows() * row_bytes_) + 1),
      kv_(RandomBytes(copies_ * of.rows() * row_bytes_ / 2, DType::kF16)),
      workspace_bytes_(BudgetAttentionWorkspaceBytes(
          of.slots, of.head_dim, bench.options().num_threads, bench.options().isa)),
      workspace_(Allocate(workspace_bytes_)) {
  if (of.kind == KvPolicyKind::kFull) return;
  for (int64_t row = 0; row < copies_ * of.rows(); ++row) FillState(kv_.get() + row * row_bytes_);
}

void DecodeWork::FillState(std::byte* row) const {
  const int64_t block_bytes = KvBlockBytesWithState(of_.kv_heads, of_.head_dim, of_.kv_bits);
  for (int64_t kv_head = 0; kv_head < of_.kv_heads; ++kv_head) {
    const KvHead<std::byte> head{row,     of_.kv_heads, of_.head_dim,
                                 kv_head, block_bytes,  of_.kv_bits};
    for (int64_t slot = 0; slot < of_.slots; ++slot) {
      *head.Score(slot) = static_cast<float>((slot * 37 + kv_head * 11) % of_.slots);
      *head.Position(slot) = static_cast<int32_t>(slot);
    }
  }
}

int64_t DecodeWork::ReadBytes() const {
  const int64_t state = of_.kind == KvPolicyKind::kFull ? 0 : of_.kv_heads * kKvStateBytes;
  return of_.rows() * of_.slots * (KvSlotBytes(of_.kv_heads, of_.head_dim, of_.kv_bits) + state);
}

double DecodeWork::Flops() const {
  return 4.0 * static_cast<double>(of_.slots * of_.rows() * q_width_);
}

void DecodeWork::Run() { of_.kind == KvPolicyKind::kFull ? RunPlain() : RunBudget(); }

AttentionTensors DecodeWork::Tensors() const {
  AttentionTensors tensors;
  tensors.q = reinterpret_cast<const float*>(qkv_.get());
  tensors.k = tensors.q + q_width_;
  tensors.v = tensors.k + of_.kv_heads * of_.head_dim;
  tensors.qkv_stride = qkv_width_;
  tensors.out = reinterpret_cast<float*>(out_.get());
  tensors.out_stride = q_width_;
  tensors.num_heads = of_.heads();
  tensors.num_kv_heads = of_.kv_heads;
  tensors.head_dim = of_.head_dim;
  tensors.scale = 1.0F / std::sqrt(static_cast<float>(of_.head_dim));
  tensors.kv_bits = of_.kv_bits;
  return tensors;
}

void DecodeWork::RunPlain() {
  std::vector<AttentionRow> rows;
  std::byte* first = NextKv();
  for (int64_t row = 0; row < of_.rows(); ++row)
    rows.push_back({first + row * row_bytes_, of_.slots, of_.slots - 1, 1, row, nullptr});
  Attention({Tensors(), rows, 0}, {workspace_.get(), static_cast<size_t>(workspace_bytes_)},
            bench_.pool(), bench_.options().isa);
}

void DecodeWork::RunBudget() {
  const bool window = of_.kind == KvPolicyKind::kWindow;
  const int64_t held = of_.slots - 1;
  const KvKeep keep{0, window ? 0 : held / 2, window ? held : held - held / 2};
  const int64_t position = held + num_calls_ / copies_;
  std::vector<BudgetAttentionRow> rows;
  std::byte* first = NextKv();
  for (int64_t row = 0; row < of_.rows(); ++row)
    rows.push_back({first + row * row_bytes_, of_.slots, held, position, keep, row});
  BudgetAttention({Tensors(), rows, of_.kind},
                  {workspace_.get(), static_cast<size_t>(workspace_bytes_)}, bench_.pool(),
                  bench_.options().isa);
}

}  // namespace spillway::kernels
