#include "benchmarks/kernels/decode_case.h"

#include <cmath>

#include "kernels/attention/budget_attention.h"
#include "kernels/kv/kv_head.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"

namespace spillway::kernels {

int64_t DecodeCase::RunSlots(int64_t run) const {
  if (!has_runs()) return slots;
  const double share = run_shares[static_cast<std::size_t>(run) % run_shares.size()];
  return RoundUp(static_cast<int64_t>(share * static_cast<double>(slots)), KvBlockSlots(kv_bits));
}

int64_t DecodeCase::RowSlots() const {
  int64_t sum = 0;
  for (int64_t run = 0; run < runs(); ++run) sum += RunSlots(run);
  return sum;
}

int64_t DecodeWork::slot_bytes() const {
  return (of_.kind == KvPolicyKind::kFull ? KvSlotBytes : KvSlotBytesWithState)(
      of_.run_heads(), of_.head_dim, of_.kv_bits);
}

// Random halves are random codes, and as good as any for their min and scale.
DecodeWork::DecodeWork(Bench& bench, const DecodeCase& of)
    : bench_(bench),
      of_(of),
      row_bytes_(of_.RowSlots() * slot_bytes()),
      copies_(kFarBytes / (of.rows() * row_bytes_) + 1),
      kv_(RandomBytes(copies_ * of.rows() * row_bytes_ / 2, DType::kF16)),
      workspace_bytes_(BudgetAttentionWorkspaceBytes(
          of_.RowSlots(), of.head_dim, bench.options().num_threads, bench.options().isa)),
      workspace_(Allocate(workspace_bytes_)) {
  if (of.rolls) turns_.assign(static_cast<size_t>((of.slots + 1) * of.head_dim), 0.5F);
  if (of.centres) {
    means_.assign(static_cast<size_t>(of.kv_heads * KeyMeanSpans(2 * of.slots) * of.head_dim),
                  0.5F);
  }
  if (of.kind == KvPolicyKind::kFull) return;
  std::byte* run = kv_.get();
  for (int64_t index = 0; index < copies_ * of.rows() * of_.runs(); ++index) {
    const int64_t slots = of_.RunSlots(index % of_.runs());
    FillState(run, slots);
    run += slots * slot_bytes();
  }
}

void DecodeWork::FillState(std::byte* run, int64_t num_slots) const {
  const int64_t heads = of_.run_heads();
  const int64_t block_bytes = KvBlockBytesWithState(heads, of_.head_dim, of_.kv_bits);
  for (int64_t kv_head = 0; kv_head < heads; ++kv_head) {
    const KvHead<std::byte> head{run, heads, of_.head_dim, kv_head, block_bytes, of_.kv_bits};
    for (int64_t slot = 0; slot < num_slots; ++slot) {
      *head.Score(slot) = static_cast<float>((slot * 37 + kv_head * 11) % num_slots);
      *head.Position(slot) = static_cast<int32_t>(slot);
    }
  }
}

int64_t DecodeWork::ReadBytes() const {
  const int64_t heads = of_.run_heads();
  const int64_t state = of_.kind == KvPolicyKind::kFull ? 0 : heads * kKvStateBytes;
  return of_.rows() * of_.RowSlots() * (KvSlotBytes(heads, of_.head_dim, of_.kv_bits) + state);
}

double DecodeWork::Flops() const {
  return 4.0 * static_cast<double>(of_.RowSlots() * of_.rows() * q_width_ / of_.runs());
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
  if (of_.rolls) tensors.turns = {turns_.data(), of_.slots + 1, of_.head_dim};
  if (of_.centres) tensors.means = {means_.data(), KeyMeanSpans(2 * of_.slots)};
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
  const int64_t step = num_calls_ / copies_;
  std::vector<BudgetAttentionRow> rows;
  std::byte* kv = NextKv();
  for (int64_t row = 0; row < of_.rows(); ++row) {
    for (int64_t run = 0; run < of_.runs(); ++run) {
      const int64_t slots = of_.RunSlots(run);
      const int64_t held = slots - 1;
      const KvKeep keep{0, window ? 0 : held / 2, window ? held : held - held / 2};
      rows.push_back({kv, slots, held, held + step, keep, row, run, held});
      kv += slots * slot_bytes();
    }
  }
  BudgetAttention({Tensors(), rows, of_.kind, of_.run_heads()},
                  {workspace_.get(), static_cast<size_t>(workspace_bytes_)}, bench_.pool(),
                  bench_.options().isa);
}

}  // namespace spillway::kernels
