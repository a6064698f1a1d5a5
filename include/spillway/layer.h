// Layer: what one schedulable layer of a network computes, as data: its tensors, and a short
// program of operations on named buffers. Families write it (src/model/families); the plan sizes
// buffers from it, the cost model counts it, executors interpret it (src/compute/layer_runner.h).
// Plain values; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "spillway/compute_part.h"
#include "spillway/dtype.h"

namespace spillway {

// Runs of neighbouring rows of a published tensor, at equal distances.
struct RowRuns {
  int64_t rows = 0;    // of a run; 0: all are one run
  int64_t stride = 0;  // from the first row of a run to that of the next one

  bool operator==(const RowRuns&) const = default;
};

// One of the tensors of a stack, which a checkpoint has as one of a dimension more, in front.
struct Stacked {
  int64_t count = 0;  // in the stack; 0: there is none
  int64_t index = 0;

  bool operator==(const Stacked&) const = default;
};

// Rows of a published tensor that hold one of ours: with one run, row r is row first_row + r there;
// of a transposed matrix, column first_row + r.
struct TensorSource {
  std::string name;  // without the leading "model."
  int64_t first_row = 0;
  int64_t num_rows = 0;     // of the published tensor; 0: as many as ours
  bool transposed = false;  // published as [cols, num_rows]
  RowRuns runs = {};
  Stacked stacked = {};

  bool operator==(const TensorSource&) const = default;
};

// A tensor that the model needs. Matrices are [rows, cols], row-major, one row per output feature;
// vectors have cols == 1 and are held in fp32.
struct TensorSpec {
  std::string name;  // unique in the model; a store calls it so
  int64_t rows = 0;
  int64_t cols = 1;
  DType dtype = DType::kF16;  // as held in memory
  // Other names, or larger tensors, that hold it in a checkpoint; the first that is there counts.
  std::vector<TensorSource> sources = {};

  bool is_vector() const { return dtype == DType::kF32; }
  int64_t row_bytes() const { return RowBytes(dtype, cols); }
  int64_t bytes() const { return rows * row_bytes(); }
  // The least that can be read or made by itself: an element, or a row of groups.
  int64_t unit_elements() const { return IsQuantised(dtype) ? cols : 1; }
  int64_t unit_bytes() const { return IsQuantised(dtype) ? row_bytes() : DTypeBytes(dtype); }
};

// A tensor by its layer in the model and its number in that layer. Layers may use each other's: a
// tied head multiplies with the embedding's table.
struct TensorRef {
  int32_t layer = -1;
  int32_t index = -1;

  constexpr bool exists() const { return layer >= 0; }
  bool operator==(const TensorRef&) const = default;
};

// Buffers of a layer's program, fp32 [tokens, width]. Between layers only a token's states last:
// the hidden ones, and in models with experts what the layers of the experts read of it.
enum class Buf : uint8_t {
  kHidden,      // [hidden]: the states; in the head, of the tokens whose logits are wanted
  kNormed,      // [hidden]
  kQkv,         // [q | k | v]: heads side by side
  kAttended,    // [q]
  kInner,       // [ffn]
  kGate,        // [ffn]
  kEmbedded,    // [embed]: embeddings that are projected to the states, or states to them
  kLogits,      // [vocab]
  kExpertIn,    // [hidden]: input of a decoder layer's experts; lasts
  kChoice,      // [2 * slots]: numbers of a token's experts, then their weights; lasts
  kRouter,      // [experts + 1]: scores of experts
  kExpertRows,  // [hidden]: the tokens of one expert, then what it makes of them
};
inline constexpr std::size_t kNumBufs = 12;

// Whether a buffer is a part of the states of a token, which last between layers.
constexpr bool IsState(Buf buf) {
  return buf == Buf::kHidden || buf == Buf::kExpertIn || buf == Buf::kChoice;
}

// One T for each buffer.
template <typename T>
struct PerBuf {
  std::array<T, kNumBufs> values{};

  constexpr T& operator[](Buf buf) { return values[static_cast<std::size_t>(buf)]; }
  constexpr const T& operator[](Buf buf) const { return values[static_cast<std::size_t>(buf)]; }
};

// Columns of a buffer from `begin` on.
struct Columns {
  Buf buf = Buf::kHidden;
  int64_t begin = 0;
};

// kClampedSwish: g sigmoid(1.702 g) with g = min(x, 7). kClampedOffset: x clamped to [-7, 7], plus
// 1, which the other one is multiplied by in gpt-oss. A NaN stays one.
enum class Activation { kNone, kRelu, kGelu, kGeluTanh, kSilu, kClampedSwish, kClampedOffset };
inline constexpr float kClampLimit = 7.0F;
inline constexpr float kSwishSlope = 1.702F;

enum class GatherIds { kTokens, kPositions };
enum class Update { kSet, kAdd };

// y = scale times rows first_row + id of the table, one for each token; or y += those rows.
struct Gather {
  TensorRef table;
  GatherIds ids = GatherIds::kTokens;
  int64_t first_row = 0;
  Buf y = Buf::kHidden;
  Update update = Update::kSet;
  float scale = 1.0F;  // 1 where rows are added
};

enum class NormKind { kLayer, kRms };

// y = norm(x) * (weight_offset + weight) + bias; without tensors norm(x) alone. x and y may be one.
struct Norm {
  Buf x = Buf::kHidden;
  Buf y = Buf::kNormed;
  TensorRef weight;
  TensorRef bias;
  NormKind kind = NormKind::kLayer;
  float epsilon = 0.0F;
  float weight_offset = 0.0F;
  std::optional<Buf> plus = {};  // added to y
};

// Arithmetic of a product: as the run asks for (--cpu-compute), or with inputs and sums in fp32
// whatever it asks for.
enum class Arithmetic { kAsAsked, kFp32 };

// y = activation(x weight' + bias) [* times] [+ plus].
struct Linear {
  Buf x = Buf::kNormed;
  Columns y;
  TensorRef weight;
  TensorRef bias = {};
  Activation activation = Activation::kNone;
  std::optional<Buf> times = {};
  std::optional<Buf> plus = {};
  Arithmetic arithmetic = Arithmetic::kAsAsked;
};

enum class RopePairs { kHalves, kNeighbours };  // of the first `dims` of a head

// Scaling of frequencies for contexts longer than those of training.
//   kLinear: each is divided by `factor`.
//   kLlama3: those whose wave is longer than original_positions / low_frequency are, those whose
//     wave is shorter than original_positions / high_frequency are not, those between in part.
//   kYarn: pairs that turn fewer than slow_turns times within original_positions are, those that
//     turn more than fast_turns times are not, those between in part.
//   kDynamic: for a row longer than original_positions theta grows with its length.
//   kLong: each is divided by its own factor, of one list for rows up to original_positions long
//     and of another one for longer rows.
//   kStill: nothing turns, so that a layer knows no positions.
enum class RopeScalingKind { kNone, kLinear, kLlama3, kYarn, kDynamic, kLong, kStill };

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1.0;
  double low_frequency = 1.0;
  double high_frequency = 4.0;
  int64_t original_positions = 0;
  double fast_turns = 32.0;
  double slow_turns = 1.0;
  bool whole_pairs = true;                 // kYarn: its bounds are rounded to pairs
  double attention_factor = 1.0;           // cosines and sines are multiplied by it
  std::vector<double> short_factors = {};  // [dims / 2]
  std::vector<double> long_factors = {};   // [dims / 2]

  // True where a row's frequencies depend on its length: its prompt and all that it may generate,
  // which is known when it is admitted. So no key that is stored has to be turned again, and no
  // row depends on another one.
  bool depends_on_length() const {
    return kind == RopeScalingKind::kDynamic || kind == RopeScalingKind::kLong;
  }
  bool operator==(const RopeScaling&) const = default;
};

// Rotary positions: pair i turns by position * theta^(-2i / dims), scaled.
struct Rope {
  double theta = 10000.0;
  int64_t dims = 0;  // of a head, the first ones; the others are not turned
  RopePairs pairs = RopePairs::kHalves;
  RopeScaling scaling = {};

  bool operator==(const Rope&) const = default;
};

// Fills [dims / 2] with what a position is multiplied by in rows of `length` tokens, as
// transformers computes it in float32. Length 0: the shortest rows.
void FillInverseFrequencies(const Rope& rope, int64_t length, std::span<float> frequencies);
std::vector<float> InverseFrequencies(const Rope& rope, int64_t length = 0);

// Heads of head_dim elements, side by side in `x`, are turned by their token's position.
struct Rotate {
  Columns x;
  int64_t num_heads = 0;
  Rope rope;
};

// Each head of `x` is normed by itself (RMS), with one weight [size] for all. Heads that are normed
// together are one.
struct HeadNorm {
  Columns x;
  int64_t num_heads = 0;
  int64_t size = 0;  // elements of a head
  TensorRef weight;
  float epsilon = 0.0F;
  float weight_offset = 0.0F;
};

// y = softmax(soft_cap(scale q k')) v over what the row's KV cache holds; the new k and v go there.
// With sinks the softmax of a query head is over one score more, its sink, which has no value.
struct Attend {
  Buf qkv = Buf::kQkv;
  Buf y = Buf::kAttended;
  float scale = 0.0F;
  int64_t window = 0;     // tokens that a token sees, itself included: 2 or more; 0: all before it
  float soft_cap = 0.0F;  // 0: none
  TensorRef sinks = {};   // [num_heads]; absent: there are none
};

// x = cap * tanh(scale * x / cap); without a cap scale * x.
struct SoftCap {
  Buf x = Buf::kLogits;
  float cap = 0.0F;  // 0: none
  float scale = 1.0F;
};

// Weights of a token's experts: the softmax over all scores, or over those of the chosen ones.
enum class ChoiceWeights { kOfAll, kOfChosen };

// y = the top_k experts of the highest scores x, highest first, ties to the lower number; with
// their weights. A shared expert, which every token has, comes last, by the number num_experts; its
// weight is the sigmoid of the score behind the others'.
struct Choose {
  Buf x = Buf::kRouter;
  Buf y = Buf::kChoice;
  int64_t num_experts = 0;
  int64_t top_k = 0;
  ChoiceWeights weights = ChoiceWeights::kOfChosen;
  bool shared = false;

  int64_t slots() const { return top_k + (shared ? 1 : 0); }
};

// The gated MLP of one expert, biases included, of the rows in kExpertRows, which it leaves there.
struct Expert {
  Linear gate;
  Linear up;  // times gate
  Linear down;
};

// y += weight * expert(x) for each of a token's experts that is one of these, in their order:
// experts number first, first + 1, ... All the experts of a decoder layer are some such operations
// in layers of their own, in ascending order, so that a token's sum has one order.
struct Experts {
  Buf x = Buf::kExpertIn;
  Buf choice = Buf::kChoice;
  Buf y = Buf::kHidden;
  int64_t first = 0;
  std::vector<Expert> experts = {};
};

using Op = std::variant<Gather, Norm, Linear, Rotate, HeadNorm, Attend, SoftCap, Choose, Experts>;

// The unit of the schedule: weights are loaded by layer. `ops` run in this order.
struct LayerSpec {
  ComputePart part = ComputePart::kEmbedding;
  int64_t decoder_layer = -1;  // of the model, from 0; -1: embedding and head
  std::vector<TensorSpec> tensors = {};
  std::vector<Op> ops = {};
};

inline bool IsAttend(const Op& op) { return std::holds_alternative<Attend>(op); }

// True where a program computes experts.
bool HasExperts(const std::vector<Op>& ops);

// Products of a program, those of experts too; and of experts alone. Lifetime: pointers into the
// argument, which may not be a temporary.
std::vector<const Linear*> ProductsOf(const std::vector<Op>& ops);
std::vector<const Linear*> ProductsOf(std::vector<Op>&& ops) = delete;
std::vector<const Linear*> ProductsOf(const Experts& experts);

// Whether a program reads and extends the KV cache.
inline bool Attends(const std::vector<Op>& ops) { return std::ranges::any_of(ops, IsAttend); }

// The attention of a program. Requires: Attends(ops).
const Attend& AttendOf(const std::vector<Op>& ops);

// The rope of a program's rotations, all by the same one; null: it has none.
const Rope* RopeOf(const std::vector<Op>& ops);

// The buffers that a program names, and the tensors, absent ones left out; some more than once.
std::vector<Buf> BufsOf(const std::vector<Op>& ops);
std::vector<TensorRef> TensorsOf(const std::vector<Op>& ops);

}  // namespace spillway
