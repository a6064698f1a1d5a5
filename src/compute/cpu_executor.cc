#include "src/compute/cpu_executor.h"

#include <algorithm>
#include <cstring>

#include "kernels/attention/head_reflection.h"
#include "kernels/rows/embedding.h"
#include "kernels/rows/norm.h"
#include "spillway/error.h"
#include "spillway/expert_gather.h"
#include "src/base/stop_signal.h"
#include "src/compute/rope_tables.h"

namespace spillway {

CpuExecutor::CpuExecutor(const Plan& plan, const Arena& device, ThreadPool& pool, kernels::Isa isa)
    : plan_(plan),
      device_(device),
      pool_(pool),
      isa_(isa),
      runner_(plan, device),
      layer_(plan, device),
      ropes_(plan),
      reference_memory_(ReferenceKeys::Bytes(plan)),
      reference_(plan, reference_memory_.As<std::byte>({0, reference_memory_.bytes()})),
      prefix_(plan, device) {
  const auto max_rows = static_cast<std::size_t>(plan.batch.rows);
  attention_rows_.reserve(max_rows);
  const std::size_t max_runs = max_rows * static_cast<std::size_t>(plan.KvRuns());
  compact_rows_.reserve(max_runs);
  budget_rows_.reserve(max_runs);
  sharing_rows_.reserve(max_rows);
  shared_runs_.reserve(max_rows);
  if (plan.shape.experts.num > 0) gathered_.reserve(static_cast<std::size_t>(MostGathered(plan)));
  if (plan.kept.rolls) FillKeyTurns(plan, 0, device.View(plan.workspace.key_turns), pool);
  if (plan.centres_keys) FillSpanTurns(plan, device.As<float>(plan.workspace.span_turns), pool);
}

void CpuExecutor::Compute(const Cursor& at, const PackedBatch& batch, const CellPlaces& places) {
  SPILLWAY_CHECK(batch.batch < plan_.num_batches);
  SPILLWAY_CHECK(static_cast<int64_t>(batch.tokens.size()) <= plan_.batch.prompt_tokens);
  runner_.BeginChoices();
  const PlannedLayer& layer = plan_.layers[static_cast<std::size_t>(at.layer)];
  const Cell cell = {layer, batch, places};
  AdvanceReference(cell, at.layer);
  AdvancePrefix(cell, at.layer);
  if (layer.part == ComputePart::kHead) return ComputeHead(cell);
  if (HasExperts(layer.ops)) return GatherExperts(cell);
  turns_ = ropes_.For(layer, batch);
  // A pass is cut into chunks of tokens, so that the workspace is the plan's and not the longest
  // prompt's. Chunks go in token order: a chunk's attention reads the K and V that earlier chunks
  // of the same row stored.
  for (const Tier tier : kAllTiers) {
    const TokenRange& range = batch.hidden[tier];
    for (int64_t begin = range.begin; begin < range.end; begin += plan_.workspace.chunk_tokens) {
      ThrowIfStopRequested();
      ComputeChunk(cell, layer_.ChunkAt(cell, begin, range.end));
    }
  }
}

void CpuExecutor::GatherExperts(const Cell& cell) {
  experts_ = &std::get<Experts>(cell.layer.ops.front());
  layer_.ForStates(cell, [&](float* states) { GatherToken(*experts_, states); });
  if (!GathersAllBatches(plan_)) EndLayer();
}

void CpuExecutor::GatherToken(const Experts& experts, float* states) {
  gathered_.push_back({states, states + StateColumn(plan_.shape, experts.choice)});
}

void CpuExecutor::EndLayer() {
  if (gathered_.empty()) return;
  ThrowIfStopRequested();
  runner_.RunExperts(*experts_, gathered_, *this);
  gathered_.clear();
}

void CpuExecutor::ComputeChunk(const Cell& cell, const Chunk& chunk) {
  const ProgramInput all = {{}, 0, cell.batch.tokens, cell.batch.TurnedBy(), turns_};
  ProgramInput input = all.Part(chunk.begin, chunk.size());
  input.hidden = chunk.hidden;
  runner_.Run(cell.layer, input, *this, [&](const Attend& op) {
    AttendTurned(op, cell.layer, input.positions, [&] { AttendChunk(op, cell, chunk); });
  });
}

template <typename F>
void CpuExecutor::AttendTurned(const Attend& op, const PlannedLayer& layer,
                               std::span<const int32_t> positions, F attend) {
  const int64_t rows = std::ssize(positions);
  if (plan_.ReflectsHeads()) Reflect(layer, rows);
  Turn(layer_.TurnedInputs(At(op.qkv).data, rows));
  if (plan_.centres_keys) Centre(op, layer, positions);
  attend();
  Turn(layer_.TurnedOutputs(At(op.y).data, rows));
}

void CpuExecutor::Turn(const kernels::HeadTurnArgs& heads) {
  if (heads.rows > 0) kernels::TurnHeads(heads, pool_);
}

Rows CpuExecutor::At(Buf buf) {
  return {device_.As<float>(plan_.workspace.buffers[buf]), WidthOf(plan_.shape, buf)};
}

void CpuExecutor::Gather(const TableGather& gather) {
  const TensorSpec& table = gather.table.spec;
  const kernels::EmbeddingArgs args = {layer_.Pieces(gather.table),
                                       table.dtype,
                                       table.cols,
                                       gather.first_row,
                                       gather.ids,
                                       gather.y.data,
                                       gather.y.stride,
                                       gather.scale};
  if (gather.update == Update::kAdd) return kernels::EmbeddingAdd(args);
  kernels::EmbeddingLookup(args);
}

void CpuExecutor::Norm(const kernels::NormArgs& args) { kernels::Norm(args, pool_, isa_); }

void CpuExecutor::NormHeads(const kernels::HeadNormArgs& args) {
  kernels::HeadNorm(args, pool_, isa_);
}

void CpuExecutor::Rotate(const kernels::RotateArgs& args) { kernels::Rotate(args, pool_, isa_); }

void CpuExecutor::SoftCap(const kernels::SoftCapArgs& args) { kernels::SoftCap(args, pool_, isa_); }

void CpuExecutor::Multiply(const kernels::MatmulArgs& args) {
  kernels::Matmul(args, device_.View(plan_.workspace.matmul), pool_, isa_);
}

bool CpuExecutor::Choose(const kernels::ChooseExpertsArgs& args) {
  kernels::ChooseExperts(args, pool_);
  return true;
}

void CpuExecutor::TakeRows(const kernels::TakeExpertRowsArgs& args) {
  kernels::TakeExpertRows(args, pool_);
}

void CpuExecutor::AddRows(const kernels::AddExpertRowsArgs& args) {
  kernels::AddExpertRows(args, pool_);
}

void CpuExecutor::AttendChunk(const Attend& op, const Cell& cell, const Chunk& chunk) {
  attention_rows_.clear();
  compact_rows_.clear();
  budget_rows_.clear();
  sharing_rows_.clear();
  shared_runs_.clear();
  layer_.BeginChunk();
  for (std::size_t row = 0; row < cell.batch.rows.size(); ++row) {
    const auto at = layer_.RowIn(cell, chunk, row);
    if (!at) continue;
    if (!plan_.kept.evicts()) {
      AddCached(cell, *at);
    } else if (at->row.num_past == 0) {
      AddPrompt(*at);
    } else {
      layer_.ForBudgetRows(*at, [&](const auto& run) { budget_rows_.push_back(run); });
    }
  }
  AttendRows(op);
}

void CpuExecutor::AddCached(const Cell& cell, const LayerArgs::RowInChunk& at) {
  const std::optional<kernels::KvRun> shared = layer_.SharedRun(cell, at);
  if (shared) shared_runs_.push_back(*shared);
  (shared ? sharing_rows_ : attention_rows_).push_back(layer_.CachedRow(at));
}

// Begins a prompt's scores before its first chunk: the kernel adds to them from chunk to chunk.
void CpuExecutor::BeginScores(const LayerArgs::PromptRow& prompt, int64_t num_own) {
  const int64_t prefix = prompt.attention.prefix_slots;
  for (int64_t head = 0; head < plan_.shape.num_heads; ++head) {
    float* scores = prompt.attention.token_scores + head * plan_.workspace.prompt.columns();
    if (prefix > 0) std::copy_n(prompt.prefix_scores + head * prefix, prefix, scores);
    std::fill_n(scores + prefix, num_own, 0.0F);
  }
}

void CpuExecutor::AddPrompt(const LayerArgs::RowInChunk& at) {
  const LayerArgs::PromptRow prompt = layer_.Prompt(at);
  if (prompt.begins && prompt.attention.token_scores != nullptr)
    BeginScores(prompt, at.row.num_new);
  attention_rows_.push_back(prompt.attention);
  if (!prompt.ends) return;
  layer_.ForCompactRows(at, prompt, at.kv, [&](const auto& run) { compact_rows_.push_back(run); });
}

// Attends to prompts, to those last that begin with another row's tokens, which may be of this
// chunk; compacts those that end here, then attends to single tokens.
void CpuExecutor::AttendRows(const Attend& op) {
  const ModelShape& shape = plan_.shape;
  const std::span<std::byte> workspace = device_.View(plan_.workspace.attention);
  float* qkv = At(op.qkv).data;
  float* attended = At(op.y).data;
  const kernels::AttentionArgs args = layer_.Attention(op, qkv, attended, attention_rows_);
  kernels::Attention(args, workspace, pool_, isa_);
  if (!shared_runs_.empty()) {
    kernels::CopyKv(shared_runs_, pool_);
    kernels::Attention(layer_.Attention(op, qkv, attended, sharing_rows_), workspace, pool_, isa_);
  }
  if (!compact_rows_.empty()) {
    kernels::KvCompact(
        {compact_rows_, plan_.kept.kind, args.token_scores_stride, shape.num_heads,
         shape.num_kv_heads, shape.head_dim, args.kv_bits, plan_.RunHeads(), plan_.kv_block_fill},
        workspace, pool_);
  }
  if (budget_rows_.empty()) return;
  kernels::BudgetAttention(layer_.Budget(op, qkv, attended, budget_rows_), workspace, pool_, isa_);
}

// Computes the logits of the wanted tokens only: of a row that generates the last one, at 512
// prompt tokens 1/512 of the head's work.
void CpuExecutor::ComputeHead(const Cell& cell) {
  const int64_t num_rows = cell.batch.head.size();
  SPILLWAY_CHECK(num_rows <= plan_.batch.logits);
  const Rows states = At(Buf::kHidden);
  for (int64_t row = 0; row < num_rows; ++row) {
    std::memcpy(states.data + row * states.stride,
                layer_.Hidden(cell, cell.batch.Wanted(cell.batch.head.begin + row).token),
                static_cast<std::size_t>(states.stride) * sizeof(float));
  }
  runner_.Run(cell.layer, {states, num_rows}, *this, [](const Attend&) {});
  logits_ = {At(Buf::kLogits).data, static_cast<std::size_t>(num_rows * plan_.shape.vocab_size)};
}

// Takes the reference prompt through the layer before its first compute: the first pass comes to
// every layer in order, with its weights in place.
void CpuExecutor::AdvanceReference(const Cell& cell, int64_t layer) {
  if (!reference_.Awaits(layer)) return;
  const int64_t stride = StateWidth(plan_.shape);
  if (HasExperts(cell.layer.ops)) {
    GatherPrompt(cell.layer, {reference_.Hidden(), stride}, reference_.num_tokens());
  } else {
    const ProgramInput all = {{reference_.Hidden(), stride},
                              reference_.num_tokens(),
                              reference_.tokens(),
                              reference_.positions(),
                              ropes_.For(cell.layer, cell.batch)};
    runner_.RunPrompt(cell.layer, all, *this, [&](const Attend& op, int64_t begin, int64_t rows) {
      AttendReference(op, cell.layer, all.turns, {begin, begin + rows});
    });
  }
  if (cell.layer.attends) FinishReference(cell.layer.decoder_layer);
  reference_.Advance();
}

void CpuExecutor::FinishReference(int64_t decoder_layer) {
  if (plan_.centres_keys) return kernels::MakeKeyMeans(reference_.MeanArgsOf(decoder_layer));
  kernels::MakeReflectors(reference_.ReflectorArgsOf(decoder_layer));
}

// Gathers the tokens of a prompt that goes through the layers ahead of the rows.
void CpuExecutor::GatherPrompt(const PlannedLayer& layer, const Rows& states, int64_t num_tokens) {
  const auto& experts = std::get<Experts>(layer.ops.front());
  for (int64_t token = 0; token < num_tokens; ++token)
    GatherToken(experts, states.data + token * states.stride);
}

void CpuExecutor::AdvancePrefix(const Cell& cell, int64_t layer) {
  if (!prefix_.Awaits(layer)) return;
  const int64_t stride = StateWidth(plan_.shape);
  if (HasExperts(cell.layer.ops)) {
    GatherPrompt(cell.layer, {prefix_.Hidden(), stride}, prefix_.num_tokens());
  } else {
    const ProgramInput all = {{prefix_.Hidden(), stride},
                              prefix_.num_tokens(),
                              prefix_.tokens(),
                              prefix_.positions(),
                              ropes_.For(cell.layer, cell.batch)};
    runner_.RunPrompt(cell.layer, all, *this, [&](const Attend& op, int64_t begin, int64_t rows) {
      const auto positions =
          all.positions.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(rows));
      AttendTurned(op, cell.layer, positions, [&] {
        AttendPrefix(op, cell.layer, {begin, begin + rows});
      });
    });
  }
  prefix_.Advance();
}

void CpuExecutor::AttendPrefix(const Attend& op, const PlannedLayer& layer, TokenRange tokens) {
  const kernels::AttentionRow row = prefix_.Row(layer.decoder_layer, tokens.begin, tokens.size());
  kernels::AttentionArgs args = layer_.Attention(op, At(op.qkv).data, At(op.y).data, {&row, 1});
  args.token_scores_stride = prefix_.num_tokens();
  if (row.token_scores != nullptr && tokens.begin == 0)
    std::fill_n(row.token_scores, plan_.shape.num_heads * prefix_.num_tokens(), 0.0F);
  kernels::Attention(args, device_.View(plan_.workspace.attention), pool_, isa_);
}

void CpuExecutor::AttendReference(const Attend& op, const PlannedLayer& layer, const Turns& turns,
                                  TokenRange tokens) {
  const kernels::AttentionRow row = reference_.Row(tokens.begin, tokens.size());
  kernels::AttentionArgs args = layer_.Attention(op, At(op.qkv).data, At(op.y).data, {&row, 1});
  // The reference prompt's cache has 16 bits, whatever the rows' caches have.
  args.kv_dtype = DType::kF16;
  args.kv_bits = 16;
  args.kv_block_fill = 0;
  args.means = {};
  SumReference(layer, args, turns, tokens);
  kernels::Attention(args, device_.View(plan_.workspace.attention), pool_, isa_);
}

void CpuExecutor::SumReference(const PlannedLayer& layer, const kernels::AttentionTensors& tensors,
                               const Turns& turns, TokenRange tokens) {
  if (!plan_.centres_keys) {
    return kernels::AddKeyDirections(reference_.KeyDirections(tensors, tokens.size()));
  }
  kernels::SumKeys(
      reference_.KeySums(tensors, *RopeOf(layer.ops), turns.frequencies.data(), tokens));
}

void CpuExecutor::Centre(const Attend& op, const PlannedLayer& layer,
                         std::span<const int32_t> positions) {
  const float* means = reference_.Found(layer.decoder_layer);
  kernels::FillSpanMeans(layer_.SpanMeans(layer, layer_.WorkspaceMeans(means),
                                          means_.Take(layer.decoder_layer, positions)),
                         pool_);
  kernels::CentreKeys(layer_.CentredKeys(At(op.qkv).data, std::ssize(positions), positions.data()),
                      pool_);
}

void CpuExecutor::Reflect(const PlannedLayer& layer, int64_t rows) {
  for (const auto& heads : reference_.Reflections(At(Buf::kQkv).data, rows, layer.decoder_layer)) {
    kernels::ReflectHeads(heads, pool_);
  }
}

}  // namespace spillway
