#include "src/verbs/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "spillway/error.h"
#include "spillway/model.h"
#include "src/base/size_text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/model_config.h"
#include "src/checkpoint/weight_map.h"

namespace spillway {
namespace {

constexpr std::size_t kShownTensors = 10;

std::string_view ActivationName(Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return "none";
    case Activation::kRelu:
      return "relu";
    case Activation::kGelu:
      return "gelu";
    case Activation::kGeluTanh:
      return "gelu (tanh)";
    case Activation::kSilu:
      return "silu";
  }
  return "unknown";
}

std::string DescribeTensors(const Checkpoint& checkpoint) {
  std::array<int64_t, 5> counts{};
  int64_t num_others = 0;  // that cannot be read
  int64_t bytes = 0;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    ++(tensor.refusal.empty() ? counts[static_cast<std::size_t>(tensor.dtype)] : num_others);
    bytes += tensor.bytes;
  }
  std::vector<std::string> types;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8, DType::kQ4}) {
    const int64_t count = counts[static_cast<std::size_t>(dtype)];
    if (count > 0) types.push_back(fmt::format("{} {}", count, DTypeName(dtype)));
  }
  if (num_others > 0) types.push_back(fmt::format("{} of other types", num_others));
  return fmt::format("format      {}\ntensors     {} ({})\nbytes       {}\n", checkpoint.format(),
                     checkpoint.tensors().size(), fmt::join(types, ", "), ExactSizeText(bytes));
}

// Parts of attention that not every model has; empty where it has none of them.
std::string DescribeAttention(const ModelShape& shape) {
  std::vector<std::string> parts;
  if (shape.num_kv_heads != shape.num_heads)
    parts.push_back(fmt::format("{} heads of keys", shape.num_kv_heads));
  if (shape.head_norm) parts.emplace_back("norms of heads");
  if (shape.window > 0) {
    parts.push_back(fmt::format("a window of {} tokens in {} layers", shape.window,
                                std::ranges::count(shape.windowed, true)));
  }
  if (shape.score_cap > 0.0) parts.push_back(fmt::format("scores capped at {}", shape.score_cap));
  return parts.empty() ? "" : fmt::format("attention   {}\n", fmt::join(parts, ", "));
}

std::string DescribeShape(const Model& model) {
  const ModelShape& shape = model.shape;
  std::string text = fmt::format("model       {} ({}), {} parameters, {} in memory as {}\n",
                                 Printable(shape.name), shape.family, NumParameters(model),
                                 ExactSizeText(WeightBytes(model)), DTypeName(MatrixDType(shape)));
  text += fmt::format("blocks      {} of hidden size {}, {} heads of {}, ffn {} {}\n",
                      shape.num_layers, shape.hidden_size, shape.num_heads, shape.head_dim,
                      shape.ffn_size, ActivationName(shape.activation));
  text += DescribeAttention(shape);
  text += fmt::format("vocabulary  {} tokens, embeddings of {}, {} head\n", shape.vocab_size,
                      shape.embed_size, shape.tied_head ? "tied" : "own");
  text += fmt::format("positions   {}\n", shape.max_positions);
  text += fmt::format("norms       {} the block{}, {}affine; biases {}\n",
                      shape.pre_norm ? "before" : "after",
                      shape.final_norm ? ", one before the head" : "",
                      shape.norm_affine ? "" : "not ", shape.linear_bias ? "yes" : "no");
  text += fmt::format("token ids   bos {}, eos {}, pad {}\n", shape.bos, fmt::join(shape.eos, " "),
                      shape.pad);
  return text;
}

// `read_shape` may throw: a folder whose config.json is of no use is described without it.
template <typename F>
std::string DescribeAgreement(const Checkpoint& checkpoint, F read_shape) {
  std::string text;
  try {
    const Model model = MakeModel(read_shape());
    text = DescribeShape(model);
    const WeightMap map = ResolveWeights(model, checkpoint);
    text += fmt::format("agreement   every tensor of the model is there, {} more are not used\n",
                        map.surplus.size());
  } catch (const Error& error) {
    text +=
        fmt::format("not usable  {}: {}\n", ErrorName(error.code()), Printable(error.what(), 240));
  }
  return text;
}

std::string DescribeFirst(const std::vector<CheckpointTensor>& tensors) {
  std::string text = "first tensors\n";
  for (std::size_t at = 0; at < std::min(kShownTensors, tensors.size()); ++at) {
    text += fmt::format("  {:<56} {} [{}]\n", Printable(tensors[at].name),
                        tensors[at].refusal.empty() ? DTypeName(tensors[at].dtype) : "other",
                        fmt::join(tensors[at].shape, ", "));
  }
  if (tensors.size() > kShownTensors)
    text += fmt::format("  ... {} more\n", tensors.size() - kShownTensors);
  return text;
}

template <typename F>
std::string Describe(const Checkpoint& checkpoint, F read_shape) {
  return DescribeTensors(checkpoint) + DescribeAgreement(checkpoint, read_shape) +
         DescribeFirst(checkpoint.tensors());
}

}  // namespace

std::string DescribeCheckpoint(const std::filesystem::path& folder) {
  return Describe(*OpenCheckpoint(folder), [&] { return ReadModelShape(folder); });
}

std::string DescribeModel(const Checkpoint& checkpoint, const ModelShape& shape) {
  return Describe(checkpoint, [&] { return shape; });
}

}  // namespace spillway
