#include "src/compute/layer_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/rows/rotate.h"
#include "spillway/error.h"
#include "spillway/expert_gather.h"

namespace spillway {
namespace {

void RefuseWhatHasNoKernel(const Plan& plan) {
  for (const PlannedLayer& layer : plan.layers) {
    for (const Op& op : layer.ops) {
      const auto* rotate = std::get_if<Rotate>(&op);
      if (rotate == nullptr || rotate->rope.dims <= kernels::kMaxRotaryDims) continue;
      throw Error(
          ErrorCode::kModelUnsupported,
          fmt::format("{}: {} elements of a head turn, and {} are the most that this "
                      "version computes; choose another model",
                      Printable(plan.shape.name), rotate->rope.dims, kernels::kMaxRotaryDims));
    }
  }
}

// Products of one call: the same x and activation, and no result is what another one reads.
bool GoTogether(const Linear& first, const Linear& next) {
  return next.x == first.x && next.activation == first.activation &&
         next.arithmetic == first.arithmetic && first.y.buf != first.x && next.y.buf != next.x &&
         next.plus != first.y.buf && next.times != first.y.buf;
}

std::size_t NumTogether(std::span<const Op> ops) {
  const auto& first = std::get<Linear>(ops.front());
  const auto other = std::ranges::find_if(ops.subspan(1), [&](const Op& op) {
    const auto* next = std::get_if<Linear>(&op);
    return next == nullptr || !GoTogether(first, *next);
  });
  return static_cast<std::size_t>(other - ops.begin());
}

}  // namespace

Rows LayerRunner::RowsOf(Buf buf, const ProgramInput& input, OpSet& device) const {
  if (!IsState(buf)) return device.At(buf);
  return {input.hidden.data + StateColumn(plan_.shape, buf), input.hidden.stride};
}

LayerRunner::LayerRunner(const Plan& plan, const Arena& device)
    : plan_(plan), device_(device), lists_(plan.shape.experts, MostGathered(plan)) {
  RefuseWhatHasNoKernel(plan);
  std::size_t most = 0;
  for (const PlannedLayer& layer : plan.layers) {
    std::size_t pieces = 0;
    for (const Linear* linear : ProductsOf(layer.ops))
      pieces += Tensor(linear->weight).tiles.size();
    most = std::max(most, pieces);
  }
  pieces_.reserve(most);
  chosen_.reserve(static_cast<std::size_t>(plan.shape.experts.num));
}

void LayerRunner::RunOps(std::span<const Op> ops, const ProgramInput& input, OpSet& device) {
  while (!ops.empty()) {
    std::size_t count = 1;
    if (const auto* gather = std::get_if<Gather>(&ops.front())) {
      RunGather(*gather, input, device);
    } else if (const auto* norm = std::get_if<Norm>(&ops.front())) {
      RunNorm(*norm, input, device);
    } else if (const auto* head_norm = std::get_if<HeadNorm>(&ops.front())) {
      RunHeadNorm(*head_norm, input, device);
    } else if (const auto* rotate = std::get_if<Rotate>(&ops.front())) {
      RunRotate(*rotate, input, device);
    } else if (const auto* cap = std::get_if<SoftCap>(&ops.front())) {
      RunSoftCap(*cap, input, device);
    } else if (const auto* choose = std::get_if<Choose>(&ops.front())) {
      RunChoose(*choose, input, device);
    } else {
      count = NumTogether(ops);
      RunProducts(ops.first(count), input, device);
    }
    ops = ops.subspan(count);
  }
}

void LayerRunner::RunGather(const Gather& gather, const ProgramInput& input, OpSet& device) {
  const bool by_token = gather.ids == GatherIds::kTokens;
  device.Gather({gather.table, Tensor(gather.table), by_token ? input.tokens : input.positions,
                 gather.first_row, RowsOf(gather.y, input, device), gather.update, gather.scale});
}

void LayerRunner::RunNorm(const Norm& norm, const ProgramInput& input, OpSet& device) {
  const Rows x = RowsOf(norm.x, input, device);
  const Rows y = RowsOf(norm.y, input, device);
  kernels::NormArgs args;
  args.x = x.data;
  args.x_stride = x.stride;
  args.y = y.data;
  args.y_stride = y.stride;
  args.rows = input.rows;
  args.cols = WidthOf(plan_.shape, norm.x);
  args.weight = Vector(norm.weight);
  args.bias = Vector(norm.bias);
  args.epsilon = norm.epsilon;
  args.kind = norm.kind;
  args.weight_offset = norm.weight_offset;
  if (norm.plus) {
    const Rows plus = RowsOf(*norm.plus, input, device);
    args.plus = plus.data;
    args.plus_stride = plus.stride;
  }
  device.Norm(args);
}

void LayerRunner::RunHeadNorm(const HeadNorm& norm, const ProgramInput& input, OpSet& device) {
  const Rows x = RowsOf(norm.x.buf, input, device);
  device.NormHeads({x.data + norm.x.begin, x.stride, input.rows, norm.num_heads, norm.size,
                    Vector(norm.weight), norm.epsilon, norm.weight_offset});
}

// Heads that are turned before attention: where the cache rolls only the queries', which come
// first.
int64_t LayerRunner::RotatedHeads(const Rotate& rotate) const {
  if (!plan_.kept.rolls) return rotate.num_heads;
  const int64_t queries = plan_.shape.num_heads - rotate.x.begin / plan_.shape.head_dim;
  return std::clamp<int64_t>(queries, 0, rotate.num_heads);
}

void LayerRunner::RunRotate(const Rotate& rotate, const ProgramInput& input, OpSet& device) {
  const int64_t num_heads = RotatedHeads(rotate);
  if (num_heads == 0) return;
  const Rows x = RowsOf(rotate.x.buf, input, device);
  kernels::RotateArgs args;
  args.x = x.data + rotate.x.begin;
  args.x_stride = x.stride;
  args.rows = input.rows;
  args.num_heads = num_heads;
  args.head_dim = plan_.shape.head_dim;
  args.positions = input.positions.data();
  args.inverse_frequencies = input.turns.frequencies.data();
  args.dims = rotate.rope.dims;
  args.pairs = rotate.rope.pairs;
  args.factor = static_cast<float>(rotate.rope.scaling.attention_factor);
  args.tables = input.turns.tables.data();  // null where there are none
  device.Rotate(args);
}

void LayerRunner::RunSoftCap(const SoftCap& cap, const ProgramInput& input, OpSet& device) {
  const Rows x = RowsOf(cap.x, input, device);
  SPILLWAY_CHECK(x.stride == plan_.StrideOf(cap.x));  // what is behind a row may be scaled too
  device.SoftCap({x.data, input.rows * x.stride, cap.cap, cap.scale});
}

void LayerRunner::RunProducts(std::span<const Op> linears, const ProgramInput& input,
                              OpSet& device) {
  pieces_.clear();
  for (const Op& op : linears) AddPieces(std::get<Linear>(op), input, device);
  MultiplyPieces(std::get<Linear>(linears.front()), input, device);
}

void LayerRunner::RunProduct(const Linear& linear, const ProgramInput& input, OpSet& device) {
  pieces_.clear();
  AddPieces(linear, input, device);
  MultiplyPieces(linear, input, device);
}

void LayerRunner::MultiplyPieces(const Linear& first, const ProgramInput& input, OpSet& device) {
  const Rows x = RowsOf(first.x, input, device);
  kernels::MatmulArgs args;
  args.x = x.data;
  args.x_stride = x.stride;
  args.rows = input.rows;
  args.in = Tensor(first.weight).spec.cols;
  args.activation = first.activation;
  args.arithmetic = first.arithmetic;
  args.pieces = pieces_;
  device.Multiply(args);
}

// Adds one piece for each run of tiles that lie one behind the other: tiles on disk are read one by
// one, but a tensor's are staged together.
void LayerRunner::AddPieces(const Linear& linear, const ProgramInput& input, OpSet& device) {
  const PlannedTensor& weight = Tensor(linear.weight);
  const float* bias = Vector(linear.bias);
  const Rows y = RowsOf(linear.y.buf, input, device);
  const Rows plus = linear.plus ? RowsOf(*linear.plus, input, device) : Rows{};
  const Rows times = linear.times ? RowsOf(*linear.times, input, device) : Rows{};
  int64_t end = -1;  // of the piece before
  for (const WeightTile& tile : weight.tiles) {
    const int64_t tile_rows = tile.row_end - tile.row_begin;
    const Region place = {tile.place, TileBytes(weight.spec, tile)};
    const bool continues = place.offset == end;
    end = place.offset + place.bytes;
    if (continues) {
      pieces_.back().num_out += tile_rows;
      continue;
    }
    const int64_t column = linear.y.begin + tile.row_begin;
    pieces_.push_back({device_.As<std::byte>(place), weight.spec.dtype, tile_rows,
                       bias == nullptr ? nullptr : bias + tile.row_begin, y.data + column, y.stride,
                       plus.data == nullptr ? nullptr : plus.data + column, plus.stride,
                       times.data == nullptr ? nullptr : times.data + column, times.stride});
  }
}

void LayerRunner::RunChoose(const Choose& choose, const ProgramInput& input, OpSet& device) {
  const Rows scores = RowsOf(choose.x, input, device);
  const Rows choice = RowsOf(choose.y, input, device);
  const bool is_known =
      device.experts().Choose({scores.data, scores.stride, choice.data, choice.stride, input.rows,
                               choose.num_experts, choose.top_k, choose.weights, choose.shared});
  if (!is_known) return;
  chosen_.resize(static_cast<std::size_t>(choose.num_experts));
  for (int64_t row = 0; row < input.rows; ++row) {
    const float* numbers = choice.data + row * choice.stride;
    for (int64_t slot = 0; slot < choose.top_k; ++slot)
      chosen_[static_cast<std::size_t>(numbers[slot])] = 1;
  }
}

void LayerRunner::RunExperts(const Experts& experts, std::span<const GatheredToken> tokens,
                             OpSet& device) {
  const auto num_experts = std::ssize(experts.experts);
  lists_.Sort(tokens, {experts.first, num_experts});
  const ExpertTokens all = device.experts().Put(lists_.All());
  const auto most = static_cast<std::size_t>(plan_.workspace.chunk_tokens);
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    const ExpertTokens of = lists_.Of(expert, all);
    for (std::size_t begin = 0; begin < of.size(); begin += most) {
      RunExpert(experts, experts.experts[static_cast<std::size_t>(expert)],
                of.Part(begin, std::min(most, of.size() - begin)), device);
    }
  }
}

void LayerRunner::RunExpert(const Experts& of, const Expert& expert, const ExpertTokens& tokens,
                            OpSet& device) {
  const Rows rows = device.At(expert.gate.x);
  const int64_t cols = WidthOf(plan_.shape, of.x);
  device.experts().TakeRows(
      {tokens.states, StateColumn(plan_.shape, of.x), cols, rows.data, rows.stride});
  const ProgramInput taken = {{}, static_cast<int64_t>(tokens.size())};
  for (const Linear* product : {&expert.gate, &expert.up, &expert.down})
    RunProduct(*product, taken, device);
  device.experts().AddRows({tokens.states, StateColumn(plan_.shape, of.y), tokens.weights,
                            rows.data, rows.stride, cols});
}

}  // namespace spillway
