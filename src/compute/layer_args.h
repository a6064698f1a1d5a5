// LayerArgs: arguments of the attention kernels for a cell: rows where the mover says, KV as the
// policy keeps it. The same for every executor; pointers are to the device's memory. Thread rule:
// one thread. Allocates nothing once it is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/budget_attention.h"
#include "kernels/attention/head_turn.h"
#include "kernels/attention/key_centre.h"
#include "kernels/attention/kv_compact.h"
#include "kernels/attention/kv_copy.h"
#include "kernels/rows/embedding.h"
#include "spillway/plan.h"
#include "src/compute/filled_means.h"
#include "src/compute/layer_runner.h"  // Rows
#include "src/compute/prompt_places.h"
#include "src/device/cell_places.h"
#include "src/device/packed_batch.h"
#include "src/memory/arena.h"

namespace spillway {

class LayerArgs {
 public:
  struct Cell {  // what Executor::Compute was given
    const PlannedLayer& layer;
    const PackedBatch& batch;
    const CellPlaces& places;
  };
  // Tokens [begin, end) of the packed batch, their states in one tier; computed at once.
  struct Chunk {
    int64_t begin = 0;
    int64_t end = 0;
    Rows hidden = {nullptr, 0};
    int64_t size() const { return end - begin; }
  };
  struct RowInChunk {
    const PackedRow& row;
    int64_t decoder_layer;
    int64_t kv_class;
    const KvPlace& slots;
    std::byte* kv;      // the first of them
    TokenRange tokens;  // of the row, in this chunk; never empty
    int64_t offset;     // of the first of them in the chunk
  };
  struct PromptRow {
    kernels::AttentionRow attention;
    int64_t column = 0;   // of its first token's score, in a head's
    bool begins = false;  // in this chunk
    bool ends = false;    // in this chunk: what stays of it goes to the row's cache
    const float* prefix_scores = nullptr;  // [head][prefix token], with which its own begin
  };

  // `device` is the arena of plan.device(). Lifetime: plan and arena outlive this.
  LayerArgs(const Plan& plan, const Arena& device);

  // Lifetime: until the next call.
  std::span<const kernels::EmbeddingPiece> Pieces(const PlannedTensor& table);

  // The chunk of tokens from `begin`: at most workspace.chunk_tokens, and before `end`.
  Chunk ChunkAt(const Cell& cell, int64_t begin, int64_t end) const;
  float* Hidden(const Cell& cell, int64_t token) const;

  // Calls visit(states) with those of each of a cell's tokens, in their order.
  template <typename F>
  void ForStates(const Cell& cell, F visit) const {
    for (const Tier tier : kAllTiers) {
      const TokenRange& range = cell.batch.hidden[tier];
      for (int64_t token = range.begin; token < range.end; ++token) visit(Hidden(cell, token));
    }
  }

  // The sinks of attention, [heads]; null: there are none.
  const float* Sinks(const Attend& op) const { return VectorOf(plan_, device_, op.sinks); }

  // A token's q, k and v lie one behind the other at `qkv`, as a product leaves them.
  kernels::AttentionTensors Tensors(const Attend& op, float* qkv, float* out) const;
  // What is turned before attention, of a chunk's rows in `qkv`, where the plan says so: rows 0:
  // nothing. And of what was attended.
  kernels::HeadTurnArgs TurnedInputs(float* qkv, int64_t rows) const;
  kernels::HeadTurnArgs TurnedOutputs(float* attended, int64_t rows) const;
  // What is taken away from the keys of a chunk's rows in `qkv` after that, where the plan centres
  // keys.
  kernels::CentreKeysArgs CentredKeys(float* qkv, int64_t rows, const int32_t* positions) const;
  // Spans of the table that this is read from, and how they are filled for a layer.
  struct MeansMemory {
    const float* means;       // of the layer, [kv_head][head_dim]
    const float* span_turns;  // as FillSpanTurns leaves them
    float* table;             // of KeyMeans
  };
  kernels::SpanMeanArgs SpanMeans(const PlannedLayer& layer, const MeansMemory& memory,
                                  const SpanRange& spans) const;
  // Memory in the workspace, with a layer's means.
  MeansMemory WorkspaceMeans(const float* means) const;
  // Lifetime: of the rows.
  kernels::AttentionArgs Attention(const Attend& op, float* qkv, float* out,
                                   std::span<const kernels::AttentionRow> rows) const;
  kernels::BudgetAttentionArgs Budget(const Attend& op, float* qkv, float* out,
                                      std::span<const kernels::BudgetAttentionRow> rows) const;

  // Begins a chunk, whose rows RowIn then gets in their order. nullopt: the row has no token in the
  // chunk.
  void BeginChunk() { prompt_places_.BeginChunk(); }
  std::optional<RowInChunk> RowIn(const Cell& cell, const Chunk& chunk, std::size_t row) const;

  // A row that is attended to in its cache, behind the prefix that the plan holds for all rows.
  kernels::AttentionRow CachedRow(const RowInChunk& at) const;
  // What the row takes of another row's cache before it is attended to; nullopt: nothing, or it has
  // it from an earlier chunk.
  std::optional<kernels::KvRun> SharedRun(const Cell& cell, const RowInChunk& at) const;
  // A prompt where the policy evicts: attended to in the workspace, where all of it lies.
  PromptRow Prompt(const RowInChunk& at);
  // Calls `add` with what goes from there to each run of the row's cache, at `kv`.
  template <typename F>
  void ForCompactRows(const RowInChunk& at, const PromptRow& prompt, std::byte* kv, F add) const {
    ForRuns(at, [&](const KvRunPlace& run) {
      add(kernels::KvCompactRow{prompt.attention.kv, prompt.attention.token_scores,
                                at.row.num_stored(), kv + run.slot_begin * plan_.slot_bytes,
                                run.num_slots, run.keep, run.run, prompt.attention.prefix,
                                prompt.attention.prefix_slots, prompt.column});
    });
  }
  // Calls `add` with each run of a row that feeds one token after its prompt.
  template <typename F>
  void ForBudgetRows(const RowInChunk& at, F add) const {
    ForRuns(at, [&](const KvRunPlace& run) {
      add(kernels::BudgetAttentionRow{at.kv + run.slot_begin * plan_.slot_bytes, run.num_slots,
                                      run.keep.NumHeld(at.row.num_past), at.row.num_past, run.keep,
                                      at.offset, run.run, at.row.newest_place});
    });
  }

 private:
  // The turns of keys; none where the cache does not roll. Their means; none where they are not
  // centred.
  kernels::KeyTurns Turns() const;
  kernels::KeyMeans Means() const;
  template <typename F>
  void ForRuns(const RowInChunk& at, F visit) const {
    ForEachKvRun(plan_, {at.kv_class, at.slots.row_tokens, at.decoder_layer, at.row.kv_less},
                 visit);
  }
  int64_t KvClassOf(const Cell& cell) const {
    return plan_.kv_class_of[static_cast<std::size_t>(cell.layer.decoder_layer)];
  }
  const KvPlace& PlaceOf(const Cell& cell, std::size_t row) const;
  std::byte* CacheOf(const Cell& cell, std::size_t row) const;

  const Plan& plan_;
  const Arena& device_;
  PromptPlaces prompt_places_;
  std::vector<kernels::EmbeddingPiece> table_pieces_;
  std::vector<Rope> ropes_;
};

}  // namespace spillway
