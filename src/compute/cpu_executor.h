// CpuExecutor: real arithmetic on the host. Its device memory is the CPU arena, or the one that
// stands for a GPU's.
// Thread rule: one thread calls it; the pool's threads compute.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "spillway/plan.h"
#include "src/base/isa.h"
#include "src/base/thread_pool.h"
#include "src/compute/layer_args.h"
#include "src/compute/layer_runner.h"
#include "src/compute/prefix_prompt.h"
#include "src/compute/reference_keys.h"
#include "src/compute/rope_tables.h"
#include "src/device/executor.h"
#include "src/memory/arena.h"

namespace spillway {

class CpuExecutor final : public Executor, private OpSet, private ExpertOps {
 public:
  // `device` is the arena of plan.device().
  // Lifetime: plan, arena and pool outlive the executor.
  CpuExecutor(const Plan& plan, const Arena& device, ThreadPool& pool, kernels::Isa isa);

  void Compute(const Cursor& at, const PackedBatch& batch, const CellPlaces& places) override;
  void EndLayer() override;
  std::span<float> Logits() override { return logits_; }
  std::span<const uint8_t> ChosenExperts() const override { return runner_.chosen(); }

 private:
  using Cell = LayerArgs::Cell;
  using Chunk = LayerArgs::Chunk;

  // OpSet
  Rows At(Buf buf) override;
  void Gather(const TableGather& gather) override;
  void Norm(const kernels::NormArgs& args) override;
  void NormHeads(const kernels::HeadNormArgs& args) override;
  void Rotate(const kernels::RotateArgs& args) override;
  void SoftCap(const kernels::SoftCapArgs& args) override;
  void Multiply(const kernels::MatmulArgs& args) override;
  ExpertOps& experts() override { return *this; }

  // ExpertOps
  bool Choose(const kernels::ChooseExpertsArgs& args) override;
  ExpertTokens Put(const ExpertTokens& tokens) override { return tokens; }
  void TakeRows(const kernels::TakeExpertRowsArgs& args) override;
  void AddRows(const kernels::AddExpertRowsArgs& args) override;

  void ComputeChunk(const Cell& cell, const Chunk& chunk);
  void ComputeHead(const Cell& cell);
  void GatherExperts(const Cell& cell);  // a layer of nothing else
  void GatherToken(const Experts& experts, float* states);

  // Takes the reference prompt through the layer, the first time that the layer is computed.
  void AdvanceReference(const Cell& cell, int64_t layer);
  void AttendReference(const Attend& op, const PlannedLayer& layer, const Turns& turns,
                       TokenRange tokens);
  void FinishReference(int64_t decoder_layer);
  void GatherPrompt(const PlannedLayer& layer, const Rows& states, int64_t num_tokens);
  void SumReference(const PlannedLayer& layer, const kernels::AttentionTensors& tensors,
                    const Turns& turns, TokenRange tokens);
  // Takes the plan's prefix through the layer, the first time that the layer is computed.
  void AdvancePrefix(const Cell& cell, int64_t layer);
  void AttendPrefix(const Attend& op, const PlannedLayer& layer, TokenRange tokens);
  // Attention of the tokens at `positions` in the buffers, by `attend()`, with what the plan does
  // to heads before it and behind.
  template <typename F>
  void AttendTurned(const Attend& op, const PlannedLayer& layer, std::span<const int32_t> positions,
                    F attend);
  void Turn(const kernels::HeadTurnArgs& heads);
  void Reflect(const PlannedLayer& layer, int64_t rows);  // queries and keys in the buffer
  // Keys in the buffer; fills the layer's means where they are another's.
  void Centre(const Attend& op, const PlannedLayer& layer, std::span<const int32_t> positions);

  void AttendChunk(const Attend& op, const Cell& cell, const Chunk& chunk);
  void AddCached(const Cell& cell, const LayerArgs::RowInChunk& at);
  void AddPrompt(const LayerArgs::RowInChunk& at);
  void BeginScores(const LayerArgs::PromptRow& prompt, int64_t num_own);
  void AttendRows(const Attend& op);

  const Plan& plan_;
  const Arena& device_;
  ThreadPool& pool_;
  kernels::Isa isa_;
  LayerRunner runner_;
  LayerArgs layer_;
  RopeTables ropes_;
  Turns turns_;  // of the cell that is computed
  HostArena reference_memory_;
  ReferenceKeys reference_;
  PrefixPrompt prefix_;
  FilledMeans means_;  // in the workspace
  // Rows of one chunk that are attended to; each reserved for batch.rows.
  std::vector<kernels::AttentionRow> attention_rows_;
  std::vector<kernels::KvCompactRow> compact_rows_;
  std::vector<kernels::BudgetAttentionRow> budget_rows_;
  // Rows that begin with another row's tokens, and what they take of its cache.
  std::vector<kernels::AttentionRow> sharing_rows_;
  std::vector<kernels::KvRun> shared_runs_;
  // Tokens that wait for experts, and these.
  std::vector<GatheredToken> gathered_;
  const Experts* experts_ = nullptr;
  std::span<float> logits_;
};

}  // namespace spillway
