#include "src/gpu/cuda_executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/attention/head_reflection.h"
#include "kernels/attention/key_centre.h"
#include "kernels/rows/fetch_host.h"
#include "kernels/rows/gather_rows.h"
#include "kernels/rows/host_rows.h"
#include "kernels/rows/norm.h"
#include "spillway/error.h"
#include "spillway/expert_gather.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"
#include "src/base/stop_signal.h"
#include "src/cuda/check.h"
#include "src/cuda/device.h"
#include "src/gpu/gpu_needs.h"

namespace spillway {

CudaExecutor::CudaExecutor(const Plan& plan, const Arenas& arenas, ComputeQueue& computes,
                           ThreadPool& pool)
    : plan_(plan),
      device_(arenas.gpu),
      host_(arenas.cpu),
      computes_(computes),
      exchange_(LayOutExchange(plan)),
      host_gpu_(GpuAddressOf(host_.View({0, host_.bytes()}).data())),
      lane_{computes.stream(), device_.View(plan.exchange.device).data(),
            device_.As<float>(plan.workspace.buffers[Buf::kNormed]),
            device_.As<float>(plan.workspace.buffers[Buf::kQkv]),
            device_.View(plan.workspace.matmul)},
      products_(plan),
      table_({}, nullptr),
      lists_(ChunkLimits(plan)),
      runner_(plan, arenas.gpu),
      layer_(plan, arenas.gpu),
      ropes_(plan),
      attention_(plan, arenas.gpu, exchange_.scratch, layer_),
      reference_(plan, Scratch<std::byte>(exchange_.scratch.reference)),
      prefix_(plan, arenas.gpu) {
  const auto num_chunks = static_cast<std::size_t>(MaxChunks(plan));
  chunks_.reserve(num_chunks);
  chunk_rows_.reserve(num_chunks);
  last_rows_.reserve(static_cast<std::size_t>(plan.batch.logits));
  if (plan.AttendsBeside()) beside_ = std::make_unique<Beside>(*this, pool);
  if (plan.shape.experts.num > 0) gathered_ = std::make_unique<GpuExperts>(plan, ExpertMemory());
  products_.ChooseForManyRows(lane_.matmul, computes.stream());
  if (plan.kept.rolls) SendKeyTurns(pool);
  if (plan.centres_keys) SendSpanTurns(pool);
  if (reference_.num_tokens() == 0) return;
  const std::size_t bytes = static_cast<std::size_t>(plan.shape.num_kv_heads) *
                            static_cast<std::size_t>(plan.shape.head_dim) * sizeof(double);
  CudaCheck(cudaMemsetAsync(reference_.Common(), 0, bytes, computes.stream().get()),
            "clearing the sums of keys");
}

CudaExecutor::Beside::Beside(CudaExecutor& executor, ThreadPool& pool)
    : attention(executor.plan_, executor.layer_, executor.HostAttentionMemory(), pool),
      computes_of_batch(static_cast<std::size_t>(executor.plan_.num_batches)) {
  for (std::size_t turn = 0; turn < kHostTurns; ++turn) {
    const BesideLayout::Turn& layout = executor.exchange_.beside.turns[turn];
    turns[turn].attended = executor.Scratch<float>(layout.attended);
    turns[turn].host_qkv = executor.Mapped(executor.HostScratch<float>(layout.host_qkv));
    turns[turn].host_attended = executor.Mapped(executor.HostScratch<float>(layout.host_attended));
    turns[turn].host_sinks = executor.HostScratch<float>(layout.host_sinks);
  }
}

// Sends rows that fill(first, part) computes, a few at a time: all of them may be more than the
// host has to spare.
template <typename F>
void CudaExecutor::SendInParts(float* to, int64_t num_rows, int64_t width, F fill) const {
  constexpr int64_t kRows = 1024;
  std::vector<float> rows(static_cast<std::size_t>(std::min(kRows, num_rows) * width));
  for (int64_t first = 0; first < num_rows; first += kRows) {
    const auto size = static_cast<std::size_t>(std::min(kRows, num_rows - first) * width);
    const std::span<float> part = std::span(rows).first(size);
    fill(first, part);
    CudaCheck(cudaMemcpyAsync(to + first * width, part.data(), part.size_bytes(),
                              cudaMemcpyHostToDevice, computes_.stream().get()),
              "a copy of turns");
    CudaCheck(cudaStreamSynchronize(computes_.stream().get()), "a copy of turns");
  }
}

void CudaExecutor::SendKeyTurns(ThreadPool& pool) const {
  const WorkspacePlan& work = plan_.workspace;
  SendInParts(device_.As<float>(work.key_turns), work.turn_rows, plan_.shape.rope.dims,
              [&](int64_t first, std::span<float> rows) {
                FillKeyTurns(plan_, first, std::as_writable_bytes(rows), pool);
              });
}

void CudaExecutor::SendSpanTurns(ThreadPool& pool) const {
  const int64_t width = plan_.shape.head_dim;
  const int64_t num_spans = plan_.workspace.mean_spans;
  auto* to = device_.As<float>(plan_.workspace.span_turns);
  for (const Rope& rope : RopesOf(plan_.layers)) {
    SendInParts(to, num_spans, width, [&](int64_t first, std::span<float> turns) {
      FillSpanTurns(rope, {first, first + std::ssize(turns) / width}, width, turns.data(), pool);
    });
    to += num_spans * width;
  }
}

GpuExperts::Memory CudaExecutor::ExpertMemory() const {
  const ExpertExchange& experts = exchange_.experts;
  GpuExperts::Memory memory;
  memory.lists = Scratch<std::byte>(experts.lists);
  for (std::size_t turn = 0; turn < kExpertTurns; ++turn)
    memory.host_lists[turn] = HostScratch<std::byte>(experts.host_lists[turn]);
  memory.host_choices = HostScratch<float>(experts.host_choices);
  memory.to_gpu = host_gpu_ - host_.View({0, host_.bytes()}).data();
  return memory;
}

HostAttention::Memory CudaExecutor::HostAttentionMemory() const {
  const BesideLayout& beside = exchange_.beside;
  HostAttention::Memory memory;
  for (std::size_t turn = 0; turn < kHostTurns; ++turn) {
    memory.qkv[turn] = HostScratch<float>(beside.turns[turn].host_qkv);
    memory.attended[turn] = HostScratch<float>(beside.turns[turn].host_attended);
    memory.sinks[turn] = HostScratch<float>(beside.turns[turn].host_sinks);
  }
  memory.workspace = {HostScratch<std::byte>(beside.host_workspace),
                      static_cast<std::size_t>(beside.host_workspace.bytes)};
  if (!plan_.centres_keys) return memory;
  memory.means = HostScratch<float>(beside.host_means.of_layers);
  memory.span_turns = HostScratch<float>(beside.host_means.span_turns);
  memory.means_table = HostScratch<float>(beside.host_means.table);
  return memory;
}

CudaExecutor::~CudaExecutor() {
  try {
    if (beside_ != nullptr) {  // of a compute that was not enqueued whole
      JoinLanes(beside_->host, beside_->first);
      JoinLanes(computes_.stream(), beside_->host);
    }
    computes_.Wait(computes_.EndCompute());
  } catch (const Error&) {  // a lost GPU computes nothing more
  }
}

void CudaExecutor::Compute(const Cursor& at, const PackedBatch& batch, const CellPlaces& places) {
  SPILLWAY_CHECK(batch.batch < plan_.num_batches);
  SPILLWAY_CHECK(static_cast<int64_t>(batch.tokens.size()) <= plan_.batch.prompt_tokens);
  ThrowIfStopRequested();
  chosen_ = {};
  if (beside_ != nullptr) beside_->attention.ThrowIfFailed();
  const auto number = static_cast<int64_t>(computes_.num_computes()) + 1;
  if (number > kComputesAhead) computes_.Wait(static_cast<uint64_t>(number - kComputesAhead));
  const Region table = {plan_.exchange.host.offset + number % kHostTables * exchange_.table_bytes,
                        exchange_.table_bytes};
  const Cell cell = {plan_.layers[static_cast<std::size_t>(at.layer)], batch, places};
  const bool attends = cell.layer.attends;
  if (beside_ != nullptr) {
    beside_->attention.BeginCompute(number);
    if (attends) ++beside_->num_cells;
  }
  table_ = TableWriter(host_.View(table), attends ? FirstLane().table : lane_.table);
  AdvanceReference(cell, at.layer);
  AdvancePrefix(cell, at.layer);
  const bool is_head = cell.layer.part == ComputePart::kHead;
  if (HasExperts(cell.layer.ops)) {
    GatherExperts(cell);
  } else {
    is_head ? ComputeHead(cell) : ComputeChunks(cell);
  }
  const uint64_t ended = computes_.EndCompute();
  if (beside_ != nullptr) {
    beside_->computes_of_batch[static_cast<std::size_t>(batch.batch)] = ended;
  }
  if (is_head) logits_compute_ = ended;
}

void CudaExecutor::GatherExperts(const Cell& cell) {
  experts_ = &cell.layer;
  layer_.ForStates(cell, [&](float* states) { gathered_->Add(states); });
  if (!GathersAllBatches(plan_)) EndLayer();
}

// Choices cross once a decoder layer; where batches come one by one, with each of them.
void CudaExecutor::EndLayer() {
  if (gathered_ == nullptr || gathered_->tokens().empty()) return;
  ThrowIfStopRequested();
  const auto& experts = std::get<Experts>(experts_->ops.front());
  if (experts.first == 0 || !GathersAllBatches(plan_)) {
    gathered_->FetchChoices(lane_.stream);
    computes_.Wait(computes_.EndCompute());
  }
  if (experts.first == 0) chosen_ = gathered_->Chosen();
  LaneOps ops(*this, *experts_, lane_, nullptr);
  runner_.RunExperts(experts, gathered_->tokens(), ops);
  gathered_->Clear();
  const uint64_t ended = computes_.EndCompute();
  if (beside_ != nullptr) std::ranges::fill(beside_->computes_of_batch, ended);
}

std::span<float> CudaExecutor::Logits() {
  computes_.Wait(logits_compute_);
  if (beside_ != nullptr) beside_->attention.ThrowIfFailed();
  return logits_;
}

// A pass is cut into chunks of tokens, so that the workspace is the plan's and not the longest
// prompt's; in token order, since a chunk's attention reads what earlier ones of its row stored.
void CudaExecutor::CutIntoChunks(const Cell& cell) {
  chunks_.clear();
  for (const Tier tier : kAllTiers) {
    const TokenRange& range = cell.batch.hidden[tier];
    for (int64_t begin = range.begin; begin < range.end; begin += plan_.workspace.chunk_tokens) {
      chunks_.push_back(layer_.ChunkAt(cell, begin, range.end));
    }
  }
}

void CudaExecutor::SendTable(Stream& stream) {
  const std::span<const std::byte> written = table_.written();
  kernels::FetchHostAsync(
      {Mapped(written.data()), table_.device(), static_cast<int64_t>(written.size())}, stream);
}

template <typename T>
T* CudaExecutor::Mapped(T* host) const {
  const auto* at = reinterpret_cast<const std::byte*>(host);
  return reinterpret_cast<T*>(host_gpu_ + (at - host_.View({0, host_.bytes()}).data()));
}

CudaExecutor::Lane CudaExecutor::FirstLane() {
  if (beside_ == nullptr) return lane_;
  const BesideLayout& layout = exchange_.beside;
  const Region& table = layout.tables[beside_->num_cells % kHostTurns];
  return {beside_->first,
          Scratch<std::byte>(table),
          Scratch<float>(layout.normed),
          Scratch<float>(layout.qkv),
          {Scratch<std::byte>(layout.matmul), static_cast<std::size_t>(layout.matmul.bytes)}};
}

void CudaExecutor::PutTables(const PlannedLayer& layer) {
  gather_tables_.clear();
  for (const Op& op : layer.ops) {
    if (const auto* gather = std::get_if<Gather>(&op)) {
      gather_tables_.push_back(
          {gather->table, table_.Put(layer_.Pieces(plan_.Tensor(gather->table)))});
    }
  }
}

// Puts into the table what the layer's gathers and rotations read: ids for one that gathers,
// positions for both, frequencies for one that rotates.
ProgramInput CudaExecutor::PutInput(std::span<const TokenId> tokens,
                                    std::span<const int32_t> positions, const Turns& turns) {
  const bool rotates = !turns.frequencies.empty();
  if (gather_tables_.empty() && !rotates) return {};
  ProgramInput input;
  if (!gather_tables_.empty()) {
    const int64_t vocabulary = plan_.shape.vocab_size;
    for (const TokenId id : tokens) SPILLWAY_CHECK(id >= 0 && id < vocabulary);
    input.tokens = table_.Put(tokens);
  }
  input.positions = table_.Put(positions);
  if (!rotates) return input;
  input.turns.frequencies = table_.Put(turns.frequencies);
  if (!turns.tables.empty()) input.turns.tables = table_.Put(turns.tables);
  return input;
}

void CudaExecutor::ComputeChunks(const Cell& cell) {
  CutIntoChunks(cell);
  PutTables(cell.layer);
  const ProgramInput all =
      PutInput(cell.batch.tokens, cell.batch.TurnedBy(), ropes_.For(cell.layer, cell.batch));
  chunk_rows_.clear();
  for (std::size_t chunk = 0; cell.layer.attends && chunk < chunks_.size(); ++chunk) {
    chunk_rows_.push_back(ListRows(cell, chunk));
  }
  // Attention layers with the CPU beside the GPU send their table in BeginTurn, after its last use.
  const bool first_lane = beside_ != nullptr && cell.layer.attends;
  if (!first_lane && !table_.written().empty()) SendTable(lane_.stream);
  if (first_lane) HoldFirstLane(cell);
  for (std::size_t index = 0; index < chunks_.size(); ++index) ComputeChunk(cell, index, all);
}

// A batch's states are ready when its last compute is done. A compute further back than the host
// may be ahead is done already.
void CudaExecutor::HoldFirstLane(const Cell& cell) {
  const uint64_t states = beside_->computes_of_batch[static_cast<std::size_t>(cell.batch.batch)];
  if (states + kComputesAhead > computes_.num_computes()) {
    computes_.HoldUntil(states, FirstLane().stream);
  }
}

// Computes a chunk. With the CPU beside the GPU an attention layer is in two of the GPU's streams,
// with the CPU's attention between them.
void CudaExecutor::ComputeChunk(const Cell& cell, std::size_t index, const ProgramInput& all) {
  const Chunk& chunk = chunks_[index];
  ProgramInput input = all.Part(chunk.begin, chunk.size());
  input.hidden = chunk.hidden;
  Beside::Turn* turn = cell.layer.attends && beside_ != nullptr ? BeginTurn(index) : nullptr;
  LaneOps ops(*this, cell.layer, turn == nullptr ? lane_ : FirstLane(),
              turn == nullptr ? device_.As<float>(plan_.workspace.buffers[Buf::kAttended])
                              : turn->attended);
  runner_.Run(cell.layer, input, ops, [&](const Attend& op) {
    const auto positions =
        std::span(cell.batch.positions)
            .subspan(static_cast<std::size_t>(chunk.begin), static_cast<std::size_t>(chunk.size()));
    PrepareHeads(ops.lane(), cell.layer, {positions, input.positions.data()});
    attention_.Attend(op, {ops.lane().qkv, ops.attended(), chunk.size()}, chunk_rows_[index],
                      ops.lane().stream);
    if (turn != nullptr) {
      SendHostRows(op, chunk_rows_[index], *turn);
      FetchHostRows(chunk_rows_[index], *turn);
      ops.ChangeTo(lane_);
    }
    kernels::TurnHeadsAsync(layer_.TurnedOutputs(ops.attended(), chunk.size()), ops.lane().stream);
  });
  if (turn != nullptr) lane_.stream.Record(turn->finished);
}

CudaExecutor::Beside::Turn* CudaExecutor::BeginTurn(std::size_t index) {
  Beside::Turn& turn = beside_->turns[beside_->num_chunks++ % kHostTurns];
  // Waits for the chunk two before, which had this turn; it is of this cell or of one before, so
  // that the table is free as well.
  Stream& stream = FirstLane().stream;
  stream.WaitFor(turn.finished);
  if (index == 0) SendTable(stream);
  return &turn;
}

Rows CudaExecutor::LaneOps::At(Buf buf) {
  const int64_t width = executor_.plan_.StrideOf(buf);
  if (buf == Buf::kNormed) return {lane_->normed, width};
  if (buf == Buf::kQkv) return {lane_->qkv, width};
  if (buf == Buf::kAttended) return {attended_, width};
  return {executor_.device_.As<float>(executor_.plan_.workspace.buffers[buf]), width};
}

void CudaExecutor::LaneOps::Gather(const TableGather& gather) {
  const auto table = std::ranges::find(executor_.gather_tables_, gather.ref, &GatherTable::ref);
  const TensorSpec& spec = gather.table.spec;
  const kernels::EmbeddingArgs args = {table->pieces,    spec.dtype,  spec.cols,
                                       gather.first_row, gather.ids,  gather.y.data,
                                       gather.y.stride,  gather.scale};
  if (gather.update == Update::kAdd) return kernels::EmbeddingAddAsync(args, lane_->stream);
  kernels::EmbeddingLookupAsync(args, lane_->stream);
}

CudaExecutor::LaneOps::LaneOps(CudaExecutor& executor, const PlannedLayer& layer, const Lane& lane,
                               float* attended)
    : executor_(executor), first_(lane), attended_(attended) {
  const bool has_inner = std::ranges::any_of(layer.ops, [](const Op& op) {
    const auto* linear = std::get_if<Linear>(&op);
    const bool is_expert = std::holds_alternative<Experts>(op);
    return is_expert || (linear != nullptr && linear->y.buf == Buf::kInner);
  });
  if (has_inner) inner_ = At(Buf::kInner).data;
  // Products with codes pack x themselves.
  rounds_ = std::ranges::none_of(layer.ops, [&](const Op& op) {
    const auto* linear = std::get_if<Linear>(&op);
    return linear != nullptr && linear->x == Buf::kNormed &&
           IsQuantised(executor.plan_.Tensor(linear->weight).spec.dtype);
  });
}

GpuProducts::Lane CudaExecutor::LaneOps::Products() const {
  return {lane_->stream, lane_->matmul, rounds_ ? lane_->normed : nullptr, inner_};
}

void CudaExecutor::LaneOps::Norm(const kernels::NormArgs& args) {
  executor_.products_.Norm(args, Products());
}

void CudaExecutor::LaneOps::NormHeads(const kernels::HeadNormArgs& args) {
  kernels::HeadNormAsync(args, lane_->stream);
}

void CudaExecutor::LaneOps::Rotate(const kernels::RotateArgs& args) {
  kernels::RotateAsync(args, lane_->stream);
}

void CudaExecutor::LaneOps::SoftCap(const kernels::SoftCapArgs& args) {
  kernels::SoftCapAsync(args, lane_->stream);
}

void CudaExecutor::LaneOps::Multiply(const kernels::MatmulArgs& args) {
  executor_.products_.Multiply(args, Products());
}

bool CudaExecutor::LaneOps::Choose(const kernels::ChooseExpertsArgs& args) {
  kernels::ChooseExpertsAsync(args, lane_->stream);
  return false;
}

ExpertTokens CudaExecutor::LaneOps::Put(const ExpertTokens& tokens) {
  return executor_.gathered_->Put(tokens, lane_->stream);
}

void CudaExecutor::LaneOps::TakeRows(const kernels::TakeExpertRowsArgs& args) {
  kernels::TakeExpertRowsAsync(args, lane_->stream);
}

void CudaExecutor::LaneOps::AddRows(const kernels::AddExpertRowsArgs& args) {
  kernels::AddExpertRowsAsync(args, lane_->stream);
}

// Sends q, k and v of the tokens that the CPU attends to, and the sinks, and calls it.
void CudaExecutor::SendHostRows(const Attend& op, const ListedChunk& chunk, Beside::Turn& turn) {
  const Lane first = FirstLane();
  const int64_t width = WidthOf(plan_.shape, op.qkv);
  kernels::SendRowsAsync({first.qkv, width, chunk.host_tokens, width, turn.host_qkv}, first.stream);
  if (op.sinks.exists()) {
    CudaCheck(cudaMemcpyAsync(turn.host_sinks, layer_.Sinks(op),
                              static_cast<std::size_t>(plan_.shape.num_heads) * sizeof(float),
                              cudaMemcpyDeviceToHost, first.stream.get()),
              "a copy of sinks");
  }
  first.stream.Record(turn.projected);
  if (chunk.host_job == nullptr) return;
  beside_->host.WaitFor(turn.projected);
  beside_->host.Call(HostAttention::Run, chunk.host_job);
  beside_->host.Record(turn.answered);
}

// Fetches what the CPU attended into the second part of the layer.
void CudaExecutor::FetchHostRows(const ListedChunk& chunk, Beside::Turn& turn) {
  lane_.stream.WaitFor(turn.projected);
  if (chunk.host_job == nullptr) return;
  lane_.stream.WaitFor(turn.answered);
  const int64_t q = WidthOf(plan_.shape, Buf::kAttended);
  kernels::FetchRowsAsync({turn.attended, q, chunk.host_tokens, q, turn.host_attended},
                          lane_.stream);
}

// Takes the reference prompt through the layer before its first compute: the first pass comes to
// every layer in order, with its weights in place.
void CudaExecutor::AdvanceReference(const Cell& cell, int64_t layer) {
  if (!reference_.Awaits(layer)) return;
  if (beside_ != nullptr) JoinLanes(lane_.stream, beside_->first);
  if (HasExperts(cell.layer.ops)) {
    GatherPrompt({reference_.Hidden(), StateWidth(plan_.shape)}, reference_.num_tokens());
  } else {
    RunReference(cell);
  }
  if (cell.layer.attends) FinishReference(cell.layer.decoder_layer);
  reference_.Advance();
  if (beside_ != nullptr) JoinLanes(beside_->first, lane_.stream);
}

void CudaExecutor::RunReference(const Cell& cell) {
  PutTables(cell.layer);
  ProgramInput all =
      PutInput(reference_.tokens(), reference_.positions(), ropes_.For(cell.layer, cell.batch));
  all.hidden = {reference_.Hidden(), StateWidth(plan_.shape)};
  all.rows = reference_.num_tokens();
  if (!table_.written().empty()) SendTable(lane_.stream);
  LaneOps ops(*this, cell.layer, lane_, device_.As<float>(plan_.workspace.buffers[Buf::kAttended]));
  runner_.RunPrompt(cell.layer, all, ops, [&](const Attend& op, int64_t begin, int64_t rows) {
    AttendReference(op, ops, cell.layer, all.turns.frequencies.data(), {begin, begin + rows});
  });
}

// Finds what the keys that were summed have in common.
void CudaExecutor::FinishReference(int64_t decoder_layer) {
  if (!plan_.centres_keys) {
    return kernels::MakeReflectorsAsync(reference_.ReflectorArgsOf(decoder_layer), lane_.stream);
  }
  const kernels::KeyMeanArgs means = reference_.MeanArgsOf(decoder_layer);
  kernels::MakeKeyMeansAsync(means, lane_.stream);
  if (beside_ == nullptr) return;
  float* to = HostScratch<float>(exchange_.beside.host_means.of_layers);
  CudaCheck(cudaMemcpyAsync(to + decoder_layer * means.size, means.means,
                            static_cast<std::size_t>(means.size) * sizeof(float),
                            cudaMemcpyDeviceToHost, lane_.stream.get()),
            "a copy of means of keys");
}

// Gathers the tokens of a prompt that goes through the layers ahead of the rows.
void CudaExecutor::GatherPrompt(const Rows& states, int64_t num_tokens) {
  for (int64_t token = 0; token < num_tokens; ++token)
    gathered_->Add(states.data + token * states.stride);
}

// Makes what is enqueued in `later` from now on wait for what is in `earlier`.
void CudaExecutor::JoinLanes(Stream& later, Stream& earlier) {
  earlier.Record(beside_->joined);
  later.WaitFor(beside_->joined);
}

void CudaExecutor::AttendReference(const Attend& op, const LaneOps& ops, const PlannedLayer& layer,
                                   const float* frequencies, TokenRange tokens) {
  lists_.Clear();
  lists_.Add(reference_.Row(tokens.begin, tokens.size()), RowPhase::kPrompt);
  ChunkRows chunk;
  chunk.rows = table_.Put(std::span(lists_.rows()));
  chunk.tiles = table_.Put(std::span(lists_.tiles()));
  SendTable(lane_.stream);
  SumReference(op, ops, layer, frequencies, tokens);
  attention_.AttendReference(op, {ops.lane().qkv, ops.attended(), tokens.size()}, chunk,
                             lane_.stream);
}

void CudaExecutor::SumReference(const Attend& op, const LaneOps& ops, const PlannedLayer& layer,
                                const float* frequencies, TokenRange tokens) {
  const kernels::AttentionTensors tensors = layer_.Tensors(op, ops.lane().qkv, ops.attended());
  if (!plan_.centres_keys) {
    return kernels::AddKeyDirectionsAsync(reference_.KeyDirections(tensors, tokens.size()),
                                          lane_.stream);
  }
  kernels::SumKeysAsync(reference_.KeySums(tensors, *RopeOf(layer.ops), frequencies, tokens),
                        lane_.stream);
}

void CudaExecutor::AdvancePrefix(const Cell& cell, int64_t layer) {
  if (!prefix_.Awaits(layer)) return;
  const int64_t stride = StateWidth(plan_.shape);
  if (HasExperts(cell.layer.ops)) {
    GatherPrompt({prefix_.Hidden(), stride}, prefix_.num_tokens());
  } else {
    PutTables(cell.layer);
    ProgramInput all =
        PutInput(prefix_.tokens(), prefix_.positions(), ropes_.For(cell.layer, cell.batch));
    all.hidden = {prefix_.Hidden(), stride};
    all.rows = prefix_.num_tokens();
    if (!table_.written().empty()) SendTable(lane_.stream);
    LaneOps ops(*this, cell.layer, lane_,
                device_.As<float>(plan_.workspace.buffers[Buf::kAttended]));
    runner_.RunPrompt(cell.layer, all, ops, [&](const Attend& op, int64_t begin, int64_t rows) {
      AttendPrefix(op, ops, cell.layer, {begin, begin + rows}, all.positions.data() + begin);
    });
  }
  prefix_.Advance();
}

void CudaExecutor::AttendPrefix(const Attend& op, const LaneOps& ops, const PlannedLayer& layer,
                                TokenRange tokens, const int32_t* positions) {
  lists_.Clear();
  lists_.Add(prefix_.Row(layer.decoder_layer, tokens.begin, tokens.size()), RowPhase::kPrompt);
  const ChunkRows chunk =
      PutLists(lists_, [&](const auto& list) { return table_.Put(std::span(list)); });
  Stream& stream = lane_.stream;
  SendTable(stream);
  const auto of_tokens = prefix_.positions().subspan(static_cast<std::size_t>(tokens.begin),
                                                     static_cast<std::size_t>(tokens.size()));
  PrepareHeads(lane_, layer, {of_tokens, positions});
  attention_.AttendPrefix(op, {ops.lane().qkv, ops.attended(), tokens.size()}, chunk, stream);
  kernels::TurnHeadsAsync(layer_.TurnedOutputs(ops.attended(), tokens.size()), stream);
}

// Keys are centred by the means of their layer, which lie in the workspace while it is computed.
void CudaExecutor::PrepareHeads(const Lane& lane, const PlannedLayer& layer,
                                const TokenPositions& positions) {
  const int64_t rows = std::ssize(positions.host);
  if (plan_.ReflectsHeads()) Reflect(lane, layer, rows);
  kernels::TurnHeadsAsync(layer_.TurnedInputs(lane.qkv, rows), lane.stream);
  if (!plan_.centres_keys) return;
  const float* means = reference_.Found(layer.decoder_layer);
  kernels::FillSpanMeansAsync(layer_.SpanMeans(layer, layer_.WorkspaceMeans(means),
                                               means_.Take(layer.decoder_layer, positions.host)),
                              lane.stream);
  kernels::CentreKeysAsync(layer_.CentredKeys(lane.qkv, rows, positions.gpu), lane.stream);
}

void CudaExecutor::Reflect(const Lane& lane, const PlannedLayer& layer, int64_t rows) {
  for (const auto& heads : reference_.Reflections(lane.qkv, rows, layer.decoder_layer)) {
    kernels::ReflectHeadsAsync(heads, lane.stream);
  }
}

CudaExecutor::ListedChunk CudaExecutor::ListRows(const Cell& cell, std::size_t chunk) {
  lists_.Clear();
  layer_.BeginChunk();
  for (std::size_t row = 0; row < cell.batch.rows.size(); ++row) {
    if (const auto at = layer_.RowIn(cell, chunks_[chunk], row)) ListRow(cell, *at);
  }
  ListedChunk listed = {
      PutLists(lists_, [&](const auto& list) { return table_.Put(std::span(list)); })};
  if (beside_ != nullptr) {
    listed.host_job =
        beside_->attention.EndChunk(cell.layer, (beside_->num_chunks + chunk) % kHostTurns);
  }
  return listed;
}

bool CudaExecutor::AttendsOnHost(const PackedRow& row) const {
  return plan_.policy.cpu_attention && row.kv_tier != Tier::kGpu;
}

void CudaExecutor::ListRow(const Cell& cell, const LayerArgs::RowInChunk& at) {
  const bool in_prompt = at.row.num_past == 0;
  const bool evicts = plan_.kept.evicts();
  if (in_prompt && (evicts || AttendsOnHost(at.row))) return ListPrompt(at);
  if (AttendsOnHost(at.row)) return ListHostRow(at);
  if (evicts) return layer_.ForBudgetRows(at, [&](const auto& run) { lists_.Add(run); });
  if (const auto shared = layer_.SharedRun(cell, at)) lists_.AddShared(*shared);
  lists_.Add(layer_.CachedRow(at), in_prompt ? RowPhase::kPrompt : RowPhase::kDecode);
}

// Lists a prompt to be attended to in the workspace. What stays of it goes to the row's cache,
// which may be in CPU memory.
void CudaExecutor::ListPrompt(const LayerArgs::RowInChunk& at) {
  const LayerArgs::PromptRow prompt = layer_.Prompt(at);
  lists_.Add(prompt.attention, RowPhase::kPrompt);
  if (prompt.begins && prompt.prefix_scores != nullptr) ListPrefixScores(prompt);
  std::byte* kv = AttendsOnHost(at.row) ? Mapped(at.kv) : at.kv;
  if (!plan_.kept.evicts()) {
    kernels::AttentionRow stored = layer_.CachedRow(at);
    stored.kv = kv;
    lists_.AddStored(stored);
  } else if (prompt.ends) {
    layer_.ForCompactRows(at, prompt, kv, [&](const auto& run) { lists_.Add(run); });
  }
}

// A prompt's scores of the prefix's tokens begin with what the prefix's own queries gave.
void CudaExecutor::ListPrefixScores(const LayerArgs::PromptRow& prompt) {
  const int64_t num_tokens = prompt.attention.prefix_slots;
  for (int64_t head = 0; head < plan_.shape.num_heads; ++head) {
    float* to = prompt.attention.token_scores + head * plan_.workspace.prompt.columns();
    lists_.AddShared({reinterpret_cast<const std::byte*>(prompt.prefix_scores + head * num_tokens),
                      reinterpret_cast<std::byte*>(to),
                      num_tokens * static_cast<int64_t>(sizeof(float))});
  }
}

void CudaExecutor::ListHostRow(const LayerArgs::RowInChunk& at) {
  lists_.AddHostToken(at.offset);
  if (plan_.kept.evicts()) {
    layer_.ForBudgetRows(at, [&](const auto& run) { beside_->attention.Add(run); });
  } else {
    beside_->attention.Add(layer_.CachedRow(at));
  }
}

template <typename T>
T* CudaExecutor::HostScratch(const Region& region) const {
  return host_.As<T>({plan_.exchange.host.offset + region.offset, region.bytes});
}

// Computes the logits of the wanted tokens only: of a row that generates the last one, at 512
// prompt tokens 1/512 of the head's work.
void CudaExecutor::ComputeHead(const Cell& cell) {
  const ModelShape& shape = plan_.shape;
  const int64_t num_rows = cell.batch.head.size();
  SPILLWAY_CHECK(num_rows <= plan_.batch.logits);
  LaneOps ops(*this, cell.layer, lane_, nullptr);
  const Rows states = ops.At(Buf::kHidden);
  last_rows_.clear();
  for (int64_t row = 0; row < num_rows; ++row) {
    last_rows_.push_back(layer_.Hidden(cell, cell.batch.Wanted(cell.batch.head.begin + row).token));
  }
  const auto last_rows = table_.Put(std::span<const float* const>(last_rows_));
  SendTable(lane_.stream);
  kernels::GatherRowsAsync({last_rows, shape.hidden_size, states.data, states.stride},
                           lane_.stream);
  runner_.Run(cell.layer, {states, num_rows}, ops, [](const Attend&) {});
  const Region home = {plan_.exchange.host.offset + kHostTables * exchange_.table_bytes,
                       exchange_.logits_bytes};
  const auto rows = static_cast<std::size_t>(num_rows);
  const auto columns = static_cast<std::size_t>(shape.vocab_size);
  logits_ = {host_.As<float>(home), rows * columns};
  const Rows logits = ops.At(Buf::kLogits);
  CudaCheck(cudaMemcpy2DAsync(logits_.data(), columns * sizeof(float), logits.data,
                              static_cast<std::size_t>(logits.stride) * sizeof(float),
                              columns * sizeof(float), rows, cudaMemcpyDeviceToHost,
                              lane_.stream.get()),
            "a copy of logits");
}

}  // namespace spillway
