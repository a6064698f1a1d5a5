// CpuExecutor: real arithmetic on the host, on weights and KV where they lie.
// Thread rule: one thread calls it; the pool's threads compute.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"
#include "kernels/thread_pool.h"
#include "spillway/plan.h"
#include "src/execute/executor.h"
#include "src/memory/arena.h"

namespace spillway {

class CpuExecutor final : public Executor {
 public:
  // Requires: the arena has the plan's size and holds the weights at their places.
  // Lifetime: plan, arena and pool outlive the executor.
  CpuExecutor(const Plan& plan, const HostArena& arena, ThreadPool& pool, kernels::Isa isa);

  void Compute(const Cursor& at, const PackedBatch& batch) override;
  std::span<float> Logits() override { return logits_; }

 private:
  struct Chunk;  // a run of the packed tokens that is computed at once

  template <typename F>
  void ForEachChunk(const PackedBatch& batch, F compute);

  void ComputeEmbedding(const PlannedLayer& layer, const PackedBatch& batch);
  void ComputeAttention(const PlannedLayer& layer, const PackedBatch& batch);
  void ComputeMlp(const PlannedLayer& layer, const PackedBatch& batch);
  void ComputeHead(const PlannedLayer& layer, const PackedBatch& batch);

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
  void AttendChunk(const PackedBatch& batch, int64_t block, const Chunk& chunk);

  const float* Vector(const PlannedLayer& layer,
                      TensorRole role) const;  // null when the model has none
  const PlannedTensor* Find(const PlannedLayer& layer, TensorRole role) const;
  float* Hidden(const PackedBatch& batch) const;

  const Plan& plan_;
  const HostArena& arena_;
  ThreadPool& pool_;
  kernels::Isa isa_;
  std::vector<kernels::AttentionRow> attention_rows_;  // reserved for batch.rows
  std::vector<kernels::MatmulPiece> pieces_;
  std::span<float> logits_;
};

}  // namespace spillway
