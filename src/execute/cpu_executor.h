// CpuExecutor: real arithmetic on the host. Its device memory is the CPU arena, or the one that
// stands for a GPU's.
// Thread rule: one thread calls it; the pool's threads compute.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/budget_attention.h"
#include "kernels/embedding.h"
#include "kernels/isa.h"
#include "kernels/kv_compact.h"
#include "kernels/matmul.h"
#include "kernels/thread_pool.h"
#include "spillway/plan.h"
#include "src/execute/executor.h"
#include "src/execute/prompt_places.h"
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
  struct Cell;   // what Compute was given
  struct Chunk;  // a run of the packed tokens that is computed at once
  struct KvOfRow;
  struct RowInChunk;

  template <typename F>
  void ForEachChunk(const Cell& cell, F compute);

  void ComputeEmbedding(const Cell& cell);
  void ComputeAttention(const Cell& cell);
  void ComputeMlp(const Cell& cell);
  void ComputeHead(const Cell& cell);

  // Activations [rows, cols] with the floats from one row to the next.
  struct Rows {
    float* data;
    int64_t stride;
  };
  struct Linear {  // one planned matrix and what is fused onto its product
    TensorRole weight;
    TensorRole bias;
    Rows y;
    Rows residual = {nullptr, 0};
  };
  void Multiply(const PlannedLayer& layer, Rows x, int64_t rows, std::span<const Linear> linears,
                Activation activation = Activation::kNone);
  void Norm(const PlannedLayer& layer, Rows x, Rows y, int64_t rows);
  void AttendChunk(const Cell& cell, const Chunk& chunk);
  KvOfRow PlaceOf(const Cell& cell, std::size_t row) const;
  void AddRow(const RowInChunk& at);
  void AddPrompt(const RowInChunk& at);
  void Attend();
  kernels::EmbeddingArgs Lookup(const PlannedTensor& table, std::span<const int32_t> ids,
                                int64_t first_row, Rows y);

  const float* Vector(const PlannedLayer& layer,
                      TensorRole role) const;  // null when the model has none
  const PlannedTensor* Find(const PlannedLayer& layer, TensorRole role) const;
  // Where the hidden states of a token are.
  float* Hidden(const Cell& cell, int64_t token) const;

  const Plan& plan_;
  const Arena& device_;
  ThreadPool& pool_;
  kernels::Isa isa_;
  // What one chunk attends to; each reserved for batch.rows.
  std::vector<kernels::AttentionRow> attention_rows_;
  std::vector<kernels::KvCompactRow> compact_rows_;
  std::vector<kernels::BudgetAttentionRow> budget_rows_;
  PromptPlaces prompt_places_;
  std::vector<kernels::MatmulPiece> pieces_;
  std::vector<kernels::EmbeddingPiece> table_pieces_;
  std::span<float> logits_;
};

}  // namespace spillway
