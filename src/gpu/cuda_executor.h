// CudaExecutor: the arithmetic of a cell on a GPU. Compute enqueues and returns; the host is at
// most kComputesAhead computes ahead. Logits go to the host, where rows are sampled as on the CPU:
// at 64 rows of a 50 k vocabulary they are 13 MB a pass, half a millisecond of the link.
// Rows whose KV the CPU attends to (host_attention.h) split an attention layer: its first part, up
// to q, k and v, goes through a stream of its own, so that the GPU has the next batch's, and the
// rest of the batch before, to do while the CPU attends to this one.
// Thread rule: one thread calls it.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "kernels/attention/prefill_attention.h"
#include "kernels/matmul/matmul_gpu.h"
#include "spillway/plan.h"
#include "src/compute/layer_args.h"
#include "src/compute/reference_keys.h"
#include "src/cuda/compute_queue.h"
#include "src/device/device.h"  // Arenas
#include "src/device/executor.h"
#include "src/gpu/attention_lists.h"
#include "src/gpu/exchange.h"
#include "src/gpu/host_attention.h"
#include "src/gpu/table_writer.h"

namespace spillway {

class CudaExecutor final : public Executor {
 public:
  // `computes` is also what copy queues hold their copies by; the pool computes what the CPU
  // attends to. Lifetime: all of these outlive the executor. Throws: Error kGpu.
  CudaExecutor(const Plan& plan, const Arenas& arenas, ComputeQueue& computes, ThreadPool& pool);
  ~CudaExecutor() override;  // waits for what was enqueued

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
    std::span<const kernels::AttentionRow> stored_rows;
    std::span<const int32_t> host_tokens;
    HostAttention::Job* host_job = nullptr;  // of these; null: none
  };
  // A stream and what the operations in it use of the GPU's memory.
  struct Lane {
    Stream& stream;
    std::byte* table;
    float* normed;
    float* qkv;
    std::span<std::byte> matmul;
  };
  // What the CPU's attention needs, where it is asked for.
  struct Beside {
    struct Turn {
      float* attended;  // GPU
      float* host_qkv;  // as the GPU addresses them
      float* host_attended;
      Event projected;  // q, k and v, and what the GPU attends to
      Event answered;   // by the CPU
      Event finished;   // the turn is free
    };

    Beside(CudaExecutor& executor, ThreadPool& pool);

    Stream first;  // the first part of attention layers
    Stream host;   // calls the CPU
    Event joined;  // of both streams of computes, for the reference prompt
    HostAttention attention;
    std::array<Turn, kHostTurns> turns;
    std::size_t num_cells = 0;                // of attention, that had a table
    std::size_t num_chunks = 0;               // that had a turn
    std::vector<uint64_t> computes_of_batch;  // the last one of each
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
  void Project(const Lane& lane, const PlannedLayer& layer, Rows hidden,
               int64_t rows);  // to its qkv
  void FinishAttention(const PlannedLayer& layer, float* attended, Rows hidden, int64_t rows);
  void Mlp(const PlannedLayer& layer, Rows hidden, int64_t rows);

  // The reference prompt through the layer, the first time that the layer is computed.
  void AdvanceReference(const Cursor& at);
  void EmbedReference(const PlannedLayer& layer);
  void AttendReference(const PlannedLayer& layer);
  template <typename F>
  void ForEachReferenceChunk(F compute);
  void Reflect(const Lane& lane, const PlannedLayer& layer, int64_t rows);  // queries and keys
  void JoinLanes(Stream& later, Stream& earlier);

  void CutIntoChunks(const Cell& cell);
  ChunkAttention ListAttention(const Cell& cell, std::size_t chunk);
  void ListRow(const LayerArgs::RowInChunk& at);
  void ListPrompt(const LayerArgs::RowInChunk& at);
  void ListHostRow(const LayerArgs::RowInChunk& at);
  void ComputeBeside(const Cell& cell);
  // The GPU's part. `attended`: where its rows' go.
  void Attend(const Lane& lane, const ChunkAttention& attention, float* attended,
              int64_t num_tokens);
  kernels::PrefillAttentionArgs PrefillArgs(const Lane& lane, const ChunkAttention& attention,
                                            float* attended) const;
  void AttendPrompts(const Lane& lane, const kernels::PrefillAttentionArgs& prefill,
                     const ChunkAttention& attention, int64_t num_tokens);
  void Decode(const Lane& lane, const kernels::PrefillAttentionArgs& prefill,
              const ChunkAttention& attention);
  void Evict(const Lane& lane, const kernels::PrefillAttentionArgs& prefill,
             const ChunkAttention& attention);
  void SendHostRows(const ChunkAttention& attention, Beside::Turn& turn);
  void FetchHostRows(const ChunkAttention& attention, Beside::Turn& turn);
  template <typename T>
  T* Scratch(const Region& region) const;  // of plan.exchange.device
  template <typename T>
  T* HostScratch(const Region& region) const;  // of plan.exchange.host
  template <typename T>
  T* Mapped(T* host) const;  // CPU memory as the GPU addresses it
  HostAttention::Memory HostAttentionMemory() const;
  Lane FirstLane();  // of an attention layer's first part
  bool AttendsOnHost(const PackedRow& row) const;
  void Multiply(const Lane& lane, const PlannedLayer& layer, Rows x, int64_t rows,
                std::span<const Linear> linears, Activation activation = Activation::kNone);
  void Norm(const Lane& lane, const PlannedLayer& layer, Rows x, Rows y, int64_t rows);
  void SendTable(Stream& stream);  // what was put so far crosses to the GPU

  const Plan& plan_;
  const Arena& device_;
  const Arena& host_;
  ComputeQueue& computes_;
  ExchangeLayout exchange_;
  std::byte* host_gpu_;  // the host's arena as kernels address it
  Lane lane_;            // of all but what Beside has
  kernels::GpuMatmul matmul_;
  TableWriter table_;
  AttentionLists lists_;
  LayerArgs layer_;
  ReferenceKeys reference_;
  std::vector<Chunk> chunks_;  // of the cell that is being enqueued
  std::vector<ChunkAttention> attentions_;
  std::vector<const float*> last_rows_;
  std::unique_ptr<Beside> beside_;  // null: the CPU attends to nothing
  uint64_t logits_compute_ = 0;
  std::span<float> logits_;
};

}  // namespace spillway
