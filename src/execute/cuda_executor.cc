#include "src/execute/cuda_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/budget_attention.h"
#include "kernels/decode_attention.h"
#include "kernels/fetch_host.h"
#include "kernels/gather_rows.h"
#include "kernels/kv_append.h"
#include "kernels/kv_compact.h"
#include "kernels/layer_norm.h"
#include "kernels/prefill_attention.h"
#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"
#include "src/cuda/check.h"
#include "src/cuda/device.h"
#include "src/stop_signal.h"

namespace spillway {
namespace {

constexpr int64_t kMaxGridRows = 65535;  // a launch's second dimension

// The lengths of rows that are multiplied.
std::array<int64_t, 4> ProductLengths(const ModelShape& shape) {
  return {shape.hidden_size, shape.num_heads * shape.head_dim, shape.ffn_size, shape.embed_size};
}

[[noreturn]] void RefuseShape(const ModelShape& shape, std::string_view what, int64_t value,
                              std::string_view rule) {
  throw Error(ErrorCode::kModelUnsupported,
              fmt::format("{}: {} is {}, and the GPU's kernels take {}; use --device cpu",
                          Printable(shape.name), what, value, rule));
}

int64_t MaxRows(const Plan& plan) {
  return std::max(plan.workspace.chunk_tokens, plan.batch.logits);
}

}  // namespace

CudaExecutor::CudaExecutor(const Plan& plan, const Arenas& arenas, ComputeQueue& computes)
    : plan_(plan),
      device_(arenas.gpu),
      host_(arenas.cpu),
      computes_(computes),
      exchange_(LayOutExchange(plan)),
      host_tables_gpu_(GpuAddressOf(host_.View(plan.exchange.host).data())),
      matmul_(ProductLengths(plan.shape), MatrixDType(plan.shape), MaxRows(plan)),
      table_({}, nullptr),
      lists_(ChunkLimits(plan)),
      layer_(plan, arenas.gpu),
      reference_(plan, Scratch<std::byte>(exchange_.scratch.reference)) {
  const int64_t num_chunks = plan.batch.prompt_tokens / plan.workspace.chunk_tokens + 3;
  chunks_.reserve(static_cast<std::size_t>(num_chunks));
  attentions_.reserve(static_cast<std::size_t>(num_chunks));
  last_rows_.reserve(static_cast<std::size_t>(plan.batch.logits));
  if (reference_.num_tokens() == 0) return;
  const std::size_t bytes = static_cast<std::size_t>(plan.shape.num_kv_heads) *
                            static_cast<std::size_t>(plan.shape.head_dim) * sizeof(double);
  CudaCheck(cudaMemsetAsync(reference_.Common(), 0, bytes, computes.stream().get()),
            "clearing the directions of keys");
}

void CudaExecutor::RefuseWhatKernelsLack(const Plan& plan) {
  const ModelShape& shape = plan.shape;
  if (shape.head_dim % 8 != 0 || shape.head_dim > kernels::kMaxGpuHeadDim) {
    RefuseShape(shape, "the head dimension", shape.head_dim, "multiples of 8 up to 128");
  }
  for (const int64_t length : ProductLengths(shape)) {
    if (length % 8 != 0) RefuseShape(shape, "a layer's width", length, "multiples of 8");
  }
  if (shape.vocab_size % 4 != 0) {
    RefuseShape(shape, "the vocabulary", shape.vocab_size, "multiples of 4");
  }
  if (MaxRows(plan) > kMaxGridRows) {
    throw Error(ErrorCode::kFlag,
                fmt::format("--prefill-chunk and --gpu-batch-size: the GPU computes at most {} "
                            "tokens at a time; give less than {}",
                            kMaxGridRows, MaxRows(plan)));
  }
  if (plan.policy.cpu_attention) {
    throw Error(ErrorCode::kFlag,
                "--cpu-attention: with --device cuda KV is attended to on the GPU; leave it out");
  }
}

CudaExecutor::~CudaExecutor() {
  try {
    computes_.Wait(computes_.EndCompute());
  } catch (const Error&) {  // a lost GPU computes nothing more
  }
}

void CudaExecutor::Compute(const Cursor& at, const PackedBatch& batch, const CellPlaces& places) {
  SPILLWAY_CHECK(batch.batch < plan_.num_batches);
  SPILLWAY_CHECK(static_cast<int64_t>(batch.tokens.size()) <= plan_.batch.prompt_tokens);
  ThrowIfStopRequested();
  const auto number = static_cast<int64_t>(computes_.num_computes()) + 1;
  if (number > kComputesAhead) computes_.Wait(static_cast<uint64_t>(number - kComputesAhead));
  const Region table = {plan_.exchange.host.offset + number % kHostTables * exchange_.table_bytes,
                        exchange_.table_bytes};
  table_ = TableWriter(host_.View(table), device_.View(plan_.exchange.device).data());
  const Cell cell = {plan_.layers[static_cast<std::size_t>(at.layer)], batch, places};
  AdvanceReference(at);
  CutIntoChunks(cell);
  switch (cell.layer.kind) {
    case LayerKind::kEmbedding:
      ComputeEmbedding(cell);
      break;
    case LayerKind::kAttention:
      ComputeAttention(cell);
      break;
    case LayerKind::kMlp:
      ComputeMlp(cell);
      break;
    case LayerKind::kHead:
      ComputeHead(cell);
      break;
  }
  const uint64_t ended = computes_.EndCompute();
  if (cell.layer.kind == LayerKind::kHead) logits_compute_ = ended;
}

std::span<float> CudaExecutor::Logits() {
  computes_.Wait(logits_compute_);
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

void CudaExecutor::SendTable() {
  const std::byte* begin = host_.View(plan_.exchange.host).data();
  const std::span<const std::byte> written = table_.written();
  kernels::FetchHostAsync({host_tables_gpu_ + (written.data() - begin), table_.device(),
                           static_cast<int64_t>(written.size())},
                          computes_.stream());
}

CudaExecutor::TokenInput CudaExecutor::TokenInput::Part(int64_t begin, int64_t count) const {
  const auto first = static_cast<std::size_t>(begin);
  const auto size = static_cast<std::size_t>(count);
  return {tokens.subspan(first, size), positions.subspan(first, size)};
}

void CudaExecutor::ComputeEmbedding(const Cell& cell) {
  const int64_t vocabulary = LayerArgs::Find(cell.layer, TensorRole::kTokenEmbedding)->spec.rows;
  for (const TokenId id : cell.batch.tokens) SPILLWAY_CHECK(id >= 0 && id < vocabulary);
  const TokenInput input = {table_.Put(std::span<const TokenId>(cell.batch.tokens)),
                            table_.Put(std::span<const int32_t>(cell.batch.positions))};
  const EmbeddingTables tables = ListTables(cell.layer);
  SendTable();
  for (const Chunk& chunk : chunks_) {
    Embed(cell.layer, input.Part(chunk.begin, chunk.size()), tables, chunk.hidden);
  }
}

CudaExecutor::EmbeddingTables CudaExecutor::ListTables(const PlannedLayer& layer) {
  const auto put = [&](TensorRole role) {
    return table_.Put(layer_.Pieces(*LayerArgs::Find(layer, role)));
  };
  const auto tokens = put(TensorRole::kTokenEmbedding);
  return {tokens, put(TensorRole::kPositionEmbedding)};
}

void CudaExecutor::Embed(const PlannedLayer& layer, const TokenInput& input,
                         const EmbeddingTables& tables, Rows hidden) {
  const ModelShape& shape = plan_.shape;
  const bool project = shape.embed_size != shape.hidden_size;
  const TensorSpec& tokens = LayerArgs::Find(layer, TensorRole::kTokenEmbedding)->spec;
  const TensorSpec& positions = LayerArgs::Find(layer, TensorRole::kPositionEmbedding)->spec;
  const Rows embedded = {device_.As<float>(plan_.workspace.embedded), shape.embed_size};
  const Rows& to = project ? embedded : hidden;
  kernels::EmbeddingLookupAsync(
      {tables.tokens, tokens.dtype, tokens.cols, 0, input.tokens, to.data, to.stride},
      computes_.stream());
  if (project) {
    const std::array linears = {Linear{TensorRole::kProjectIn, TensorRole::kProjectIn, hidden}};
    Multiply(layer, embedded, std::ssize(input.tokens), linears);
  }
  kernels::EmbeddingAddAsync({tables.positions, positions.dtype, positions.cols,
                              shape.position_offset, input.positions, hidden.data, hidden.stride},
                             computes_.stream());
}

void CudaExecutor::ComputeAttention(const Cell& cell) {
  attentions_.clear();
  for (const Chunk& chunk : chunks_) attentions_.push_back(ListAttention(cell, chunk));
  SendTable();
  for (std::size_t index = 0; index < chunks_.size(); ++index) {
    const Chunk& chunk = chunks_[index];
    Project(cell.layer, chunk.hidden, chunk.size());
    if (plan_.policy.kv_bits < 16) Reflect(cell.layer, chunk.size());
    Attend(chunk, attentions_[index]);
    FinishAttention(cell.layer, chunk.hidden, chunk.size());
  }
}

void CudaExecutor::Project(const PlannedLayer& layer, Rows hidden, int64_t rows) {
  const ModelShape& shape = plan_.shape;
  const int64_t q = shape.num_heads * shape.head_dim;
  const int64_t kv = shape.num_kv_heads * shape.head_dim;
  const int64_t stride = q + 2 * kv;
  float* qkv = device_.As<float>(plan_.workspace.qkv);
  const Rows normed = {device_.As<float>(plan_.workspace.normed), shape.hidden_size};
  if (shape.pre_norm) Norm(layer, hidden, normed, rows);
  const std::array projections = {
      Linear{TensorRole::kQueryWeight, TensorRole::kQueryBias, {qkv, stride}},
      Linear{TensorRole::kKeyWeight, TensorRole::kKeyBias, {qkv + q, stride}},
      Linear{TensorRole::kValueWeight, TensorRole::kValueBias, {qkv + q + kv, stride}}};
  Multiply(layer, shape.pre_norm ? normed : hidden, rows, projections);
}

void CudaExecutor::FinishAttention(const PlannedLayer& layer, Rows hidden, int64_t rows) {
  const ModelShape& shape = plan_.shape;
  const Rows attended = {device_.As<float>(plan_.workspace.attended),
                         shape.num_heads * shape.head_dim};
  const std::array out = {Linear{TensorRole::kOutWeight, TensorRole::kOutBias, hidden, hidden}};
  Multiply(layer, attended, rows, out);
  if (!shape.pre_norm) Norm(layer, hidden, hidden, rows);
}

// The first pass comes to every layer in order, with its weights in place.
void CudaExecutor::AdvanceReference(const Cursor& at) {
  if (!reference_.Awaits(at.layer)) return;
  const PlannedLayer& layer = plan_.layers[static_cast<std::size_t>(at.layer)];
  if (layer.kind == LayerKind::kEmbedding) EmbedReference(layer);
  if (layer.kind == LayerKind::kAttention) AttendReference(layer);
  if (layer.kind == LayerKind::kMlp) {
    ForEachReferenceChunk([&](int64_t, Rows hidden, int64_t rows) { Mlp(layer, hidden, rows); });
  }
  reference_.Advance();
}

// In chunks as any prompt.
template <typename F>
void CudaExecutor::ForEachReferenceChunk(F compute) {
  const int64_t num_tokens = reference_.num_tokens();
  for (int64_t begin = 0; begin < num_tokens; begin += plan_.workspace.chunk_tokens) {
    const int64_t rows = std::min(plan_.workspace.chunk_tokens, num_tokens - begin);
    compute(begin, Rows{reference_.Hidden(begin), plan_.shape.hidden_size}, rows);
  }
}

void CudaExecutor::EmbedReference(const PlannedLayer& layer) {
  const int64_t count = reference_.num_tokens();
  const TokenInput input = {table_.Put(reference_.Tokens(0, count)),
                            table_.Put(reference_.Positions(0, count))};
  const EmbeddingTables tables = ListTables(layer);
  SendTable();
  ForEachReferenceChunk([&](int64_t begin, Rows hidden, int64_t rows) {
    Embed(layer, input.Part(begin, rows), tables, hidden);
  });
}

void CudaExecutor::AttendReference(const PlannedLayer& layer) {
  const ModelShape& shape = plan_.shape;
  ForEachReferenceChunk([&](int64_t begin, Rows hidden, int64_t rows) {
    lists_.Clear();
    lists_.Add(reference_.Row(begin, rows), RowPhase::kPrompt);
    ChunkAttention attention;
    attention.rows = table_.Put(std::span(lists_.rows()));
    attention.tiles = table_.Put(std::span(lists_.tiles()));
    SendTable();
    Project(layer, hidden, rows);
    kernels::PrefillAttentionArgs args = PrefillArgs(attention);
    args.layout = kernels::FullKvLayout(shape.num_kv_heads, shape.head_dim);
    args.kv_dtype = DType::kF16;
    kernels::AddKeyDirectionsAsync({args.q + args.out_stride, args.q_stride, rows,
                                    shape.num_kv_heads, shape.head_dim, reference_.Common()},
                                   computes_.stream());
    AttendPrompts(args, attention, rows);
    FinishAttention(layer, hidden, rows);
  });
  kernels::MakeReflectorsAsync(
      {reference_.Common(), shape.num_kv_heads, shape.head_dim, reference_.Reflectors(layer.block)},
      computes_.stream());
}

void CudaExecutor::Reflect(const PlannedLayer& layer, int64_t rows) {
  const ModelShape& shape = plan_.shape;
  kernels::HeadReflectionArgs args;
  args.x = device_.As<float>(plan_.workspace.qkv);
  args.stride = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
  args.rows = rows;
  args.num_heads = shape.num_heads;
  args.num_kv_heads = shape.num_kv_heads;
  args.head_dim = shape.head_dim;
  args.reflectors = reference_.Reflectors(layer.block);
  kernels::ReflectHeadsAsync(args, computes_.stream());
  args.x += shape.num_heads * shape.head_dim;
  args.num_heads = shape.num_kv_heads;
  kernels::ReflectHeadsAsync(args, computes_.stream());
}

CudaExecutor::ChunkAttention CudaExecutor::ListAttention(const Cell& cell, const Chunk& chunk) {
  lists_.Clear();
  layer_.BeginChunk();
  for (std::size_t row = 0; row < cell.batch.rows.size(); ++row) {
    if (const auto at = layer_.RowIn(cell, chunk, row)) ListRow(*at);
  }
  return {
      table_.Put(std::span(lists_.rows())),         table_.Put(std::span(lists_.tiles())),
      table_.Put(std::span(lists_.items())),        table_.Put(std::span(lists_.key_tiles())),
      table_.Put(std::span(lists_.compact_rows())), table_.Put(std::span(lists_.budget_rows()))};
}

void CudaExecutor::ListRow(const LayerArgs::RowInChunk& at) {
  const bool in_prompt = at.row.num_past == 0;
  if (!plan_.policy.kv.evicts()) {
    return lists_.Add(LayerArgs::CachedRow(at), in_prompt ? RowPhase::kPrompt : RowPhase::kDecode);
  }
  if (!in_prompt) return lists_.Add(LayerArgs::BudgetRow(at));
  const LayerArgs::PromptRow prompt = layer_.Prompt(at);
  lists_.Add(prompt.attention, RowPhase::kPrompt);
  if (prompt.compact) lists_.Add(*prompt.compact);
}

template <typename T>
T* CudaExecutor::Scratch(const Region& region) const {
  if (region.bytes == 0) return nullptr;
  return device_.As<T>({plan_.exchange.device.offset + region.offset, region.bytes});
}

kernels::PrefillAttentionArgs CudaExecutor::PrefillArgs(const ChunkAttention& attention) const {
  const ModelShape& shape = plan_.shape;
  const int64_t q = shape.num_heads * shape.head_dim;
  kernels::PrefillAttentionArgs args;
  args.q = device_.As<float>(plan_.workspace.qkv);
  args.q_stride = q + 2 * shape.num_kv_heads * shape.head_dim;
  args.out = device_.As<float>(plan_.workspace.attended);
  args.out_stride = q;
  args.log_sums = Scratch<float>(exchange_.scratch.log_sums);
  args.rows = attention.rows.data();
  args.tiles = attention.tiles.data();
  args.num_tiles = static_cast<int64_t>(attention.tiles.size());
  args.num_heads = shape.num_heads;
  args.layout = kernels::FullKvLayout(shape.num_kv_heads, shape.head_dim, plan_.policy.kv_bits);
  args.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
  args.kv_dtype = plan_.policy.kv_dtype;
  return args;
}

// Prompts, then single tokens.
void CudaExecutor::Attend(const Chunk& chunk, const ChunkAttention& attention) {
  const kernels::PrefillAttentionArgs prefill = PrefillArgs(attention);
  AttendPrompts(prefill, attention, chunk.size());
  if (plan_.policy.kv.evicts()) return Evict(prefill, attention);
  Decode(prefill, attention);
}

void CudaExecutor::AttendPrompts(const kernels::PrefillAttentionArgs& prefill,
                                 const ChunkAttention& attention, int64_t num_tokens) {
  const int64_t kv = plan_.shape.num_kv_heads * plan_.shape.head_dim;
  const float* k = prefill.q + prefill.out_stride;
  kernels::KvAppendAsync(
      {k, k + kv, prefill.q_stride, num_tokens, attention.rows.data(),
       static_cast<int64_t>(attention.rows.size()), prefill.layout, prefill.kv_dtype},
      computes_.stream());
  kernels::PrefillAttentionAsync(prefill, computes_.stream());
}

void CudaExecutor::Decode(const kernels::PrefillAttentionArgs& prefill,
                          const ChunkAttention& attention) {
  kernels::DecodeAttentionAsync(
      {prefill.q, prefill.q_stride, prefill.out, prefill.out_stride, prefill.rows,
       attention.items.data(), static_cast<int64_t>(attention.items.size()),
       Scratch<float>(exchange_.scratch.partials), prefill.num_heads, prefill.layout, prefill.scale,
       prefill.kv_dtype},
      computes_.stream());
}

// What stays of the prompts that end here, then single tokens.
void CudaExecutor::Evict(const kernels::PrefillAttentionArgs& prefill,
                         const ChunkAttention& attention) {
  const ModelShape& shape = plan_.shape;
  const AttentionScratch& scratch = exchange_.scratch;
  const PromptKvPlan& prompt = plan_.workspace.prompt;
  const KvPolicyKind kind = plan_.policy.kv.kind;
  kernels::PrefillScoresAsync({prefill, attention.key_tiles.data(),
                               static_cast<int64_t>(attention.key_tiles.size()), prompt.slots()},
                              computes_.stream());
  kernels::KvCompactAsync({{attention.compact_rows, kind, prompt.slots(), shape.num_heads,
                            shape.num_kv_heads, shape.head_dim, plan_.policy.kv_bits},
                           device_.As<std::byte>(prompt.kv),
                           prompt.slots(),
                           Scratch<float>(scratch.compact_scores),
                           Scratch<int32_t>(scratch.compact_kept)},
                          computes_.stream());
  const float* k = prefill.q + prefill.out_stride;
  kernels::BudgetAttentionAsync(
      {{prefill.q, k, k + shape.num_kv_heads * shape.head_dim, prefill.q_stride, prefill.out,
        prefill.out_stride, attention.budget_rows, shape.num_heads, shape.num_kv_heads,
        shape.head_dim, prefill.scale, prefill.kv_dtype, kind, plan_.policy.kv_bits},
       Scratch<float>(scratch.weights),
       scratch.weights_stride},
      computes_.stream());
}

void CudaExecutor::ComputeMlp(const Cell& cell) {
  for (const Chunk& chunk : chunks_) Mlp(cell.layer, chunk.hidden, chunk.size());
}

void CudaExecutor::Mlp(const PlannedLayer& layer, Rows hidden, int64_t rows) {
  const ModelShape& shape = plan_.shape;
  const Rows inner = {device_.As<float>(plan_.workspace.ffn), shape.ffn_size};
  const Rows normed = {device_.As<float>(plan_.workspace.normed), shape.hidden_size};
  if (shape.pre_norm) Norm(layer, hidden, normed, rows);
  const std::array up = {Linear{TensorRole::kUpWeight, TensorRole::kUpBias, inner}};
  Multiply(layer, shape.pre_norm ? normed : hidden, rows, up, shape.activation);
  const std::array down = {Linear{TensorRole::kDownWeight, TensorRole::kDownBias, hidden, hidden}};
  Multiply(layer, inner, rows, down);
  if (!shape.pre_norm) Norm(layer, hidden, hidden, rows);
}

// Logits of the wanted tokens only: of generated rows the last one, at 512 prompt tokens 1/512 of
// the head's work.
void CudaExecutor::ComputeHead(const Cell& cell) {
  const ModelShape& shape = plan_.shape;
  const int64_t num_rows = cell.batch.head.size();
  SPILLWAY_CHECK(num_rows <= plan_.batch.logits);
  const Rows last = {device_.As<float>(plan_.workspace.normed), shape.hidden_size};
  last_rows_.clear();
  for (int64_t row = 0; row < num_rows; ++row) {
    last_rows_.push_back(layer_.Hidden(cell, cell.batch.Wanted(cell.batch.head.begin + row).token));
  }
  const auto last_rows = table_.Put(std::span<const float* const>(last_rows_));
  SendTable();
  kernels::GatherRowsAsync({last_rows, shape.hidden_size, last.data, last.stride},
                           computes_.stream());
  if (shape.final_norm) Norm(cell.layer, last, last, num_rows);
  Rows features = last;
  if (shape.embed_size != shape.hidden_size) {
    features = {device_.As<float>(plan_.workspace.embedded), shape.embed_size};
    const std::array project = {Linear{TensorRole::kProjectOut, TensorRole::kProjectOut, features}};
    Multiply(cell.layer, last, num_rows, project);
  }
  const Rows logits = {device_.As<float>(plan_.workspace.logits), shape.vocab_size};
  const TensorRole weight = shape.tied_head ? TensorRole::kTokenEmbedding : TensorRole::kHeadWeight;
  const std::array head = {Linear{weight, weight, logits}};
  Multiply(shape.tied_head ? plan_.layers.front() : cell.layer, features, num_rows, head);
  const Region home = {plan_.exchange.host.offset + kHostTables * exchange_.table_bytes,
                       exchange_.logits_bytes};
  const auto count = static_cast<std::size_t>(num_rows * shape.vocab_size);
  logits_ = {host_.As<float>(home), count};
  CudaCheck(cudaMemcpyAsync(logits_.data(), logits.data, count * sizeof(float),
                            cudaMemcpyDeviceToHost, computes_.stream().get()),
            "a copy of logits");
}

void CudaExecutor::Multiply(const PlannedLayer& layer, Rows x, int64_t rows,
                            std::span<const Linear> linears, Activation activation) {
  matmul_.MatmulAsync(layer_.Matmul(layer, x, rows, linears, activation),
                      device_.View(plan_.workspace.matmul), computes_.stream());
}

void CudaExecutor::Norm(const PlannedLayer& layer, Rows x, Rows y, int64_t rows) {
  kernels::LayerNormAsync(layer_.Norm(layer, x, y, rows), computes_.stream());
}

}  // namespace spillway
