// CudaExecutor: the arithmetic of a cell on a GPU. Compute enqueues and returns; the host is at
// most kComputesAhead computes ahead. Logits go to the host, where rows are sampled as on the CPU:
// at 64 rows of a 50 k vocabulary they are 13 MB a pass, half a millisecond of the link.
// Rows whose KV the CPU attends to (host_attention.h) split an attention layer: its first part, up
// to q, k and v, goes through a stream of its own, so that while the CPU attends to one batch, the
// GPU computes the first part of the next batch and the rest of the one before.
// Experts wait for the choices of all tokens, which the host sorts: once a decoder layer the host
// waits for the GPU.
// Thread rule: one thread calls it.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "spillway/plan.h"
#include "src/compute/layer_args.h"
#include "src/compute/layer_runner.h"
#include "src/compute/prefix_prompt.h"
#include "src/compute/reference_keys.h"
#include "src/compute/rope_tables.h"
#include "src/cuda/compute_queue.h"
#include "src/device/device.h"  // Arenas
#include "src/device/executor.h"
#include "src/gpu/attention_lists.h"
#include "src/gpu/cuda_attention.h"
#include "src/gpu/exchange.h"
#include "src/gpu/gpu_experts.h"
#include "src/gpu/gpu_products.h"
#include "src/gpu/host_attention.h"
#include "src/gpu/table_writer.h"

namespace spillway {

class CudaExecutor final : public Executor {
 public:
  // `computes`: copy queues order their copies by it too; `pool` computes what the CPU attends to.
  // Lifetime: all of these outlive the executor. Throws: Error kGpu.
  CudaExecutor(const Plan& plan, const Arenas& arenas, ComputeQueue& computes, ThreadPool& pool);
  ~CudaExecutor() override;  // waits for what was enqueued

  void Compute(const Cursor& at, const PackedBatch& batch, const CellPlaces& places) override;
  void EndLayer() override;
  std::span<float> Logits() override;
  std::span<const uint8_t> ChosenExperts() const override { return chosen_; }

 private:
  using Cell = LayerArgs::Cell;
  using Chunk = LayerArgs::Chunk;
  struct ListedChunk : ChunkRows {
    HostAttention::Job* host_job = nullptr;  // of host_tokens; null: none
  };
  // A stream and the GPU memory that operations in it use.
  struct Lane {
    Stream& stream;
    std::byte* table;
    float* normed;
    float* qkv;
    std::span<std::byte> matmul;
  };
  // State of attention on the CPU beside the GPU, where the plan asks for it.
  struct Beside {
    struct Turn {
      float* attended;  // GPU
      float* host_qkv;  // as the GPU addresses them
      float* host_attended;
      float* host_sinks;  // as the host does
      Event projected;    // q, k and v, and what the GPU attends to
      Event answered;     // by the CPU
      Event finished;     // the turn is free
    };

    Beside(CudaExecutor& executor, ThreadPool& pool);

    Stream first;  // the first part of attention layers
    Stream host;   // calls the CPU
    Event joined;  // orders two streams after one another: JoinLanes
    HostAttention attention;
    std::array<Turn, kHostTurns> turns;
    std::size_t num_cells = 0;   // of attention layers so far; each takes the next table
    std::size_t num_chunks = 0;  // of attention layers so far; each takes the next turn
    std::vector<uint64_t> computes_of_batch;  // the last one of each
  };

  // Operations of a program in a lane. At its attention a layer may change lanes.
  class LaneOps final : public OpSet, private ExpertOps {
   public:
    LaneOps(CudaExecutor& executor, const PlannedLayer& layer, const Lane& lane, float* attended);
    LaneOps(const LaneOps&) = delete;

    const Lane& lane() const { return *lane_; }
    float* attended() const { return attended_; }
    void ChangeTo(const Lane& lane) { lane_ = &lane; }  // which outlives this

    Rows At(Buf buf) override;
    void Gather(const TableGather& gather) override;
    void Norm(const kernels::NormArgs& args) override;
    void NormHeads(const kernels::HeadNormArgs& args) override;
    void Rotate(const kernels::RotateArgs& args) override;
    void SoftCap(const kernels::SoftCapArgs& args) override;
    void Multiply(const kernels::MatmulArgs& args) override;
    ExpertOps& experts() override { return *this; }

   private:
    // ExpertOps
    bool Choose(const kernels::ChooseExpertsArgs& args) override;
    ExpertTokens Put(const ExpertTokens& tokens) override;
    void TakeRows(const kernels::TakeExpertRowsArgs& args) override;
    void AddRows(const kernels::AddExpertRowsArgs& args) override;

    GpuProducts::Lane Products() const;

    CudaExecutor& executor_;
    Lane first_;
    const Lane* lane_ = &first_;
    float* attended_;
    float* inner_ = nullptr;  // null: the layer has none, and its place may be another buffer's
    bool rounds_ = true;      // products read `normed` rounded to 16 bits
  };

  void ComputeChunks(const Cell& cell);
  void ComputeChunk(const Cell& cell, std::size_t index, const ProgramInput& input);
  void ComputeHead(const Cell& cell);
  void GatherExperts(const Cell& cell);  // a layer of nothing else
  void SendKeyTurns(ThreadPool& pool) const;
  void SendSpanTurns(ThreadPool& pool) const;
  template <typename F>
  void SendInParts(float* to, int64_t num_rows, int64_t width, F fill) const;
  GpuExperts::Memory ExpertMemory() const;

  // Embedding tables in GPU memory, of the layer that is being enqueued.
  struct GatherTable {
    TensorRef ref;
    std::span<const kernels::EmbeddingPiece> pieces;
  };
  void PutTables(const PlannedLayer& layer);
  ProgramInput PutInput(std::span<const TokenId> tokens, std::span<const int32_t> positions,
                        const Turns& turns);

  // Takes the reference prompt through the layer, the first time that the layer is computed.
  void AdvanceReference(const Cell& cell, int64_t layer);
  void RunReference(const Cell& cell);
  void AttendReference(const Attend& op, const LaneOps& ops, const PlannedLayer& layer,
                       const float* frequencies, TokenRange tokens);
  void SumReference(const Attend& op, const LaneOps& ops, const PlannedLayer& layer,
                    const float* frequencies, TokenRange tokens);
  void FinishReference(int64_t decoder_layer);
  void GatherPrompt(const Rows& states, int64_t num_tokens);
  // Takes the plan's prefix through the layer, the first time that the layer is computed.
  void AdvancePrefix(const Cell& cell, int64_t layer);
  void AttendPrefix(const Attend& op, const LaneOps& ops, const PlannedLayer& layer,
                    TokenRange tokens, const int32_t* positions);
  // Positions of tokens, in host memory and in the GPU's.
  struct TokenPositions {
    std::span<const int32_t> host;
    const int32_t* gpu;
  };
  // Prepares heads for attention, as the plan says.
  void PrepareHeads(const Lane& lane, const PlannedLayer& layer, const TokenPositions& positions);
  void Reflect(const Lane& lane, const PlannedLayer& layer, int64_t rows);  // queries and keys
  void JoinLanes(Stream& later, Stream& earlier);

  void CutIntoChunks(const Cell& cell);
  ListedChunk ListRows(const Cell& cell, std::size_t chunk);
  void ListRow(const Cell& cell, const LayerArgs::RowInChunk& at);
  void ListPrompt(const LayerArgs::RowInChunk& at);
  void ListPrefixScores(const LayerArgs::PromptRow& prompt);
  void ListHostRow(const LayerArgs::RowInChunk& at);
  void HoldFirstLane(const Cell& cell);
  Beside::Turn* BeginTurn(std::size_t index);
  void SendHostRows(const Attend& op, const ListedChunk& chunk, Beside::Turn& turn);
  void FetchHostRows(const ListedChunk& chunk, Beside::Turn& turn);
  template <typename T>
  T* Scratch(const Region& region) const {
    return ExchangeAt<T>(plan_, device_, region);
  }
  template <typename T>
  T* HostScratch(const Region& region) const;  // of plan.exchange.host
  template <typename T>
  T* Mapped(T* host) const;  // CPU memory as the GPU addresses it
  HostAttention::Memory HostAttentionMemory() const;
  Lane FirstLane();  // of an attention layer's first part
  bool AttendsOnHost(const PackedRow& row) const;
  void SendTable(Stream& stream);  // what was put so far crosses to the GPU

  const Plan& plan_;
  const Arena& device_;
  const Arena& host_;
  ComputeQueue& computes_;
  ExchangeLayout exchange_;
  std::byte* host_gpu_;  // the host's arena as kernels address it
  Lane lane_;            // of all work but first parts of attention layers beside the CPU
  GpuProducts products_;
  TableWriter table_;
  AttentionLists lists_;
  LayerRunner runner_;
  LayerArgs layer_;
  RopeTables ropes_;
  CudaAttention attention_;
  ReferenceKeys reference_;
  PrefixPrompt prefix_;
  FilledMeans means_;          // in the workspace
  std::vector<Chunk> chunks_;  // of the cell that is being enqueued
  std::vector<ListedChunk> chunk_rows_;
  std::vector<GatherTable> gather_tables_;
  std::vector<const float*> last_rows_;
  std::unique_ptr<Beside> beside_;         // null: the CPU attends to nothing
  std::unique_ptr<GpuExperts> gathered_;   // null: there are no experts
  const PlannedLayer* experts_ = nullptr;  // that the gathered tokens wait for
  std::span<const uint8_t> chosen_;        // by the tokens of the last Compute, where that is known
  uint64_t logits_compute_ = 0;
  std::span<float> logits_;
};

}  // namespace spillway
