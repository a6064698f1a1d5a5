// CpuExecutor: real arithmetic on the host. Its device memory is the CPU arena, or the one that
// stands for a GPU's.
// Thread rule: one thread calls it; the pool's threads compute.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/rows/embedding.h"
#include "spillway/plan.h"
#include "src/base/isa.h"
#include "src/base/thread_pool.h"
#include "src/compute/layer_args.h"
#include "src/compute/reference_keys.h"
#include "src/device/executor.h"
#include "src/memory/arena.h"

namespace spillway {

class CpuExecutor final : public Executor {
 public:
  // `device` is the arena of plan.device().
  // Lifetime: plan, arena and pool outlive the executor.
  CpuExecutor(const Plan& plan, const Arena& device, ThreadPool& pool, kernels::Isa isa);

  void Compute(const Cursor& at, const PackedBatch& batch, const CellPlaces& places) override;
  std::span<float> Logits() override { return logits_; }

 private:
  using Rows = LayerArgs::Rows;
  using Linear = LayerArgs::Linear;
  using Cell = LayerArgs::Cell;
  using Chunk = LayerArgs::Chunk;

  template <typename F>
  void ForEachChunk(const Cell& cell, F compute);

  void ComputeEmbedding(const Cell& cell);
  void ComputeAttention(const Cell& cell);
  void ComputeMlp(const Cell& cell);
  void ComputeHead(const Cell& cell);

  // Of tokens whose states are `hidden`, [rows]; at most a chunk.
  struct TokenInput {
    std::span<const TokenId> tokens;
    std::span<const int32_t> positions;
  };
  void Embed(const PlannedLayer& layer, const TokenInput& input, Rows hidden);
  void Project(const PlannedLayer& layer, Rows hidden, int64_t rows);  // to workspace.qkv
  void FinishAttention(const PlannedLayer& layer, Rows hidden, int64_t rows);
  void Mlp(const PlannedLayer& layer, Rows hidden, int64_t rows);

  // The reference prompt through the layer, the first time that the layer is computed.
  void AdvanceReference(const Cursor& at);
  void AttendReference(const PlannedLayer& layer, int64_t begin, int64_t rows);
  void Reflect(const PlannedLayer& layer, int64_t rows);  // queries and keys in workspace.qkv

  void Multiply(const PlannedLayer& layer, Rows x, int64_t rows, std::span<const Linear> linears,
                Activation activation = Activation::kNone);
  void Norm(const PlannedLayer& layer, Rows x, Rows y, int64_t rows);
  void AttendChunk(const Cell& cell, const Chunk& chunk);
  void AddPrompt(const LayerArgs::RowInChunk& at);
  void Attend();
  kernels::EmbeddingArgs Lookup(const PlannedTensor& table, std::span<const int32_t> ids,
                                int64_t first_row, Rows y);

  const Plan& plan_;
  const Arena& device_;
  ThreadPool& pool_;
  kernels::Isa isa_;
  LayerArgs layer_;
  HostArena reference_memory_;
  ReferenceKeys reference_;
  // What one chunk attends to; each reserved for batch.rows.
  std::vector<kernels::AttentionRow> attention_rows_;
  std::vector<kernels::KvCompactRow> compact_rows_;
  std::vector<kernels::BudgetAttentionRow> budget_rows_;
  std::span<float> logits_;
};

}  // namespace spillway
