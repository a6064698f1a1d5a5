// CudaExecutor: the arithmetic of a cell on a GPU. Compute enqueues and returns; the host is at
// most kComputesAhead computes ahead. Logits go to the host, where rows are sampled as on the CPU:
// at 64 rows of a 50 k vocabulary they are 13 MB a pass, half a millisecond of the link.
// Thread rule: one thread calls it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/matmul_gpu.h"
#include "kernels/prefill_attention.h"
#include "spillway/plan.h"
#include "src/cuda/compute_queue.h"
#include "src/execute/attention_lists.h"
#include "src/execute/device.h"  // Arenas
#include "src/execute/exchange.h"
#include "src/execute/executor.h"
#include "src/execute/layer_args.h"
#include "src/execute/reference_keys.h"
#include "src/execute/table_writer.h"

namespace spillway {

class CudaExecutor final : public Executor {
 public:
  // `computes` is also what copy queues hold their copies by. Lifetime: all of these outlive the
  // executor. Throws: Error kGpu.
  CudaExecutor(const Plan& plan, const Arenas& arenas, ComputeQueue& computes);
  ~CudaExecutor() override;  // waits for what was enqueued

  // Throws: Error kModelUnsupported, kFlag: what the kernels cannot compute.
  static void RefuseWhatKernelsLack(const Plan& plan);

  void Compute(const Cursor& at, const PackedBatch& batch, const CellPlaces& places) override;
  std::span<float> Logits() override;

 private:
  using Rows = LayerArgs::Rows;
  using Linear = LayerArgs::Linear;
  using Cell = LayerArgs::Cell;
  using Chunk = LayerArgs::Chunk;
  struct ChunkAttention {  // the rows of a chunk, in GPU memory
    std::span<const kernels::AttentionRow> rows;
    std::span<const kernels::RowTile> tiles;
    std::span<const kernels::DecodeItem> items;
    std::span<const kernels::RowTile> key_tiles;
    std::span<const kernels::KvCompactRow> compact_rows;
    std::span<const kernels::BudgetAttentionRow> budget_rows;
  };

  void ComputeEmbedding(const Cell& cell);
  void ComputeAttention(const Cell& cell);
  void ComputeMlp(const Cell& cell);
  void ComputeHead(const Cell& cell);

  // Of tokens whose states are `hidden`, at most a chunk; all in GPU memory.
  struct TokenInput {
    std::span<const TokenId> tokens;
    std::span<const int32_t> positions;

    TokenInput Part(int64_t begin, int64_t count) const;
  };
  struct EmbeddingTables {
    std::span<const kernels::EmbeddingPiece> tokens;
    std::span<const kernels::EmbeddingPiece> positions;
  };
  EmbeddingTables ListTables(const PlannedLayer& layer);
  void Embed(const PlannedLayer& layer, const TokenInput& input, const EmbeddingTables& tables,
             Rows hidden);
  void Project(const PlannedLayer& layer, Rows hidden, int64_t rows);  // to workspace.qkv
  void FinishAttention(const PlannedLayer& layer, Rows hidden, int64_t rows);
  void Mlp(const PlannedLayer& layer, Rows hidden, int64_t rows);

  // The reference prompt through the layer, the first time that the layer is computed.
  void AdvanceReference(const Cursor& at);
  void EmbedReference(const PlannedLayer& layer);
  void AttendReference(const PlannedLayer& layer);
  template <typename F>
  void ForEachReferenceChunk(F compute);
  void Reflect(const PlannedLayer& layer, int64_t rows);  // queries and keys in workspace.qkv

  void CutIntoChunks(const Cell& cell);
  ChunkAttention ListAttention(const Cell& cell, const Chunk& chunk);
  void ListRow(const LayerArgs::RowInChunk& at);
  void Attend(const Chunk& chunk, const ChunkAttention& attention);
  kernels::PrefillAttentionArgs PrefillArgs(const ChunkAttention& attention) const;
  void AttendPrompts(const kernels::PrefillAttentionArgs& prefill, const ChunkAttention& attention,
                     int64_t num_tokens);
  void Decode(const kernels::PrefillAttentionArgs& prefill, const ChunkAttention& attention);
  void Evict(const kernels::PrefillAttentionArgs& prefill, const ChunkAttention& attention);
  template <typename T>
  T* Scratch(const Region& region) const;
  void Multiply(const PlannedLayer& layer, Rows x, int64_t rows, std::span<const Linear> linears,
                Activation activation = Activation::kNone);
  void Norm(const PlannedLayer& layer, Rows x, Rows y, int64_t rows);
  void SendTable();  // what was put so far crosses to the GPU

  const Plan& plan_;
  const Arena& device_;
  const Arena& host_;
  ComputeQueue& computes_;
  ExchangeLayout exchange_;
  std::byte* host_tables_gpu_;  // plan.exchange.host as kernels address it
  kernels::GpuMatmul matmul_;
  TableWriter table_;
  AttentionLists lists_;
  LayerArgs layer_;
  ReferenceKeys reference_;
  std::vector<Chunk> chunks_;  // of the cell that is being enqueued
  std::vector<ChunkAttention> attentions_;
  std::vector<const float*> last_rows_;
  uint64_t logits_compute_ = 0;
  std::span<float> logits_;
};

}  // namespace spillway
