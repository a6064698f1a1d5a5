#include "src/verbs/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "spillway/model.h"
#include "src/base/shell_word.h"
#include "src/base/size_text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/model_config.h"
#include "src/checkpoint/weight_map.h"
#include "src/codes/coded_checkpoint.h"
#include "src/gguf/gguf_model.h"
#include "src/report/report_figures.h"
#include "src/store/held_codes.h"

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
    case Activation::kClampedSwish:
      return "clamped swish";
    case Activation::kClampedOffset:
      return "clamped, plus 1";
  }
  return "unknown";
}

std::string_view TypeName(const CheckpointTensor& tensor) {
  if (!tensor.refusal.empty()) return "of other types";
  return tensor.coded.empty() ? DTypeName(tensor.dtype) : tensor.coded;
}

// "272 fp16, 61 fp32", in the order of the tensors.
std::string CountsOfTypes(const std::vector<CheckpointTensor>& tensors) {
  std::vector<std::pair<std::string_view, int64_t>> counts;
  for (const CheckpointTensor& tensor : tensors) {
    const std::string_view name = TypeName(tensor);
    auto found = std::ranges::find(counts, name, &std::pair<std::string_view, int64_t>::first);
    if (found == counts.end()) found = counts.insert(counts.end(), {name, 0});
    ++found->second;
  }
  std::vector<std::string> types;
  for (const auto& [name, count] : counts) types.push_back(fmt::format("{} {}", count, name));
  return fmt::format("{}", fmt::join(types, ", "));
}

std::string DescribeTensors(const Checkpoint& checkpoint) {
  int64_t bytes = 0;
  bool coded = false;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    bytes += tensor.bytes;
    coded |= !tensor.coded.empty();
  }
  if (coded) {  // tensors have the size of their values
    bytes = 0;
    checkpoint.VisitFiles([&](const ModelFile& file) { bytes += file.size(); });
  }
  return fmt::format("format      {}\ntensors     {} ({})\nbytes       {}{}\n", checkpoint.format(),
                     checkpoint.tensors().size(), CountsOfTypes(checkpoint.tensors()),
                     ExactSizeText(bytes), coded ? " in files" : "");
}

std::string LayersText(int64_t num) { return fmt::format("{} layer{}", num, num == 1 ? "" : "s"); }

// Parts of attention that not every model has; empty where it has none of them.
std::string DescribeAttention(const ModelShape& shape) {
  std::vector<std::string> parts;
  if (shape.num_kv_heads != shape.num_heads)
    parts.push_back(fmt::format("{} heads of keys", shape.num_kv_heads));
  if (shape.head_norm) parts.emplace_back("norms of heads");
  if (shape.joint_head_norm) parts.emplace_back("norms of all heads together");
  if (shape.window > 0) {
    parts.push_back(fmt::format("a window of {} tokens in {}", shape.window,
                                LayersText(std::ranges::count(shape.windowed, true))));
  }
  if (shape.score_sinks) parts.emplace_back("sinks");
  if (shape.score_scale != 0.0)
    parts.push_back(fmt::format("scores times {:.4g}", shape.score_scale));
  if (shape.score_cap > 0.0) parts.push_back(fmt::format("scores capped at {}", shape.score_cap));
  return parts.empty() ? "" : fmt::format("attention   {}\n", fmt::join(parts, ", "));
}

std::string DescribeExperts(const ModelShape& shape) {
  const ExpertShape& experts = shape.experts;
  if (experts.num == 0) return "";
  std::string text = fmt::format("experts     {} of ffn {}, {} for a token", experts.num,
                                 experts.ffn_size, experts.top_k);
  if (experts.shared_ffn > 0) text += fmt::format(", one of ffn {} for all", experts.shared_ffn);
  const auto num_dense = std::ranges::count(experts.dense, true);
  if (num_dense > 0) text += fmt::format("; {} blocks have an MLP instead", num_dense);
  return text + "\n";
}

std::string RopeText(const Rope& rope, const ModelShape& shape) {
  std::string text = fmt::format("theta {}", rope.theta);
  if (rope.dims != shape.head_dim)
    text += fmt::format(", {} of {} elements of a head", rope.dims, shape.head_dim);
  return rope.scaling.kind == RopeScalingKind::kNone ? text : text + ", scaled";
}

// "rotary (theta 1000000, scaled; theta 10000 in windowed layers), none in 9 layers"; empty where
// positions are learned.
std::string DescribeRope(const ModelShape& shape) {
  if (shape.rope.dims == 0) return "";
  const auto num_unturned = std::ranges::count(shape.unturned, true);
  if (num_unturned == shape.num_layers) return ", known to no layer";
  std::string text = ", rotary (" + RopeText(shape.rope, shape);
  if (shape.window_rope && *shape.window_rope != shape.rope)
    text += fmt::format("; {} in windowed layers", RopeText(*shape.window_rope, shape));
  return text + (num_unturned > 0 ? fmt::format("), none in {}", LayersText(num_unturned)) : ")");
}

// Where norms stand in a block.
std::string_view NormPlaces(const ModelShape& shape) {
  if (!shape.branch_norm) return shape.pre_norm ? "before the block" : "after the block";
  return shape.pre_norm ? "before the block and after each branch" : "after each branch";
}

// What is done to the logits; empty where it is nothing.
std::string DescribeLogits(const ModelShape& shape) {
  std::vector<std::string> parts;
  if (shape.logit_scale != 1.0) parts.push_back(fmt::format("times {:.4g}", shape.logit_scale));
  if (shape.logit_cap > 0.0) parts.push_back(fmt::format("capped at {}", shape.logit_cap));
  return parts.empty() ? "" : fmt::format("logits      {}\n", fmt::join(parts, ", "));
}

std::string DescribeShape(const Model& model) {
  const ModelShape& shape = model.shape;
  std::string text = fmt::format("model       {} ({}), {} parameters, {} in memory as {}\n",
                                 Printable(shape.name), shape.family, NumParameters(model),
                                 ExactSizeText(WeightBytes(model)), HeldTypesText(shape));
  text += fmt::format("blocks      {} of hidden size {}, {} heads of {}, ffn {} {}\n",
                      shape.num_layers, shape.hidden_size, shape.num_heads, shape.head_dim,
                      shape.ffn_size, ActivationName(shape.activation));
  text += DescribeAttention(shape);
  text += DescribeExperts(shape);
  text += fmt::format("vocabulary  {} tokens, embeddings of {}, {} head\n", shape.vocab_size,
                      shape.embed_size, shape.tied_head ? "tied" : "own");
  text += fmt::format("positions   {}{}\n", shape.max_positions, DescribeRope(shape));
  text += DescribeLogits(shape);
  text += fmt::format("norms       {}{}, {}affine; biases {}\n", NormPlaces(shape),
                      shape.final_norm ? ", one before the head" : "",
                      shape.norm_affine ? "" : "not ", shape.linear_bias ? "yes" : "no");
  text += fmt::format("token ids   bos {}, eos {}, pad {}\n", shape.bos, fmt::join(shape.eos, " "),
                      shape.pad);
  return text;
}

std::string DescribeObstacle(const PublishedCodes& codes) {
  if (codes.held.empty())
    return fmt::format("codes       decoded to 16 bits: {}\n", codes.obstacle);
  return fmt::format("codes       {} of {} matrices of layers have 16 bits, the first: {}\n",
                     codes.num_decoded, codes.num_matrices, codes.obstacle);
}

// `read_shape` may throw: a folder whose config.json is of no use is described without it.
template <typename F>
std::string DescribeAgreement(const Checkpoint& checkpoint, F read_shape) {
  std::string text;
  try {
    ModelShape shape = read_shape();
    shape.experts.mxfp4 |= HasMxfp4Experts(checkpoint);  // a store's says it itself
    const Model model = MakeModel(shape);
    text = DescribeShape(model);
    const WeightMap map = ResolveWeights(model, checkpoint);
    const PublishedCodes codes = FindPublishedCodes(shape, checkpoint, map);
    if (!codes.none()) {  // those of a store are in its shape
      HoldCodes(codes, shape);
      text = DescribeShape(MakeModel(std::move(shape)));
    }
    if (!codes.obstacle.empty()) text += DescribeObstacle(codes);
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
                        tensors[at].refusal.empty() ? TypeName(tensors[at]) : "other",
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

std::string DescribeGguf(const std::filesystem::path& path) {
  const GgufModel model = OpenGgufModel(path);
  return Describe(*model.checkpoint, [&] {
    ModelShape shape = ReadModelShape(model.folder);
    shape.name = model.name;
    return shape;
  });
}

std::optional<std::string> DescribeWeightsFile(const std::filesystem::path& path) {
  const std::unique_ptr<Checkpoint> checkpoint = OpenWeightsFile(path);
  if (checkpoint == nullptr) return std::nullopt;
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  return DescribeTensors(*checkpoint) +
         fmt::format("model       its folder tells: spillway inspect {}\n", ShellPath(folder)) +
         DescribeFirst(checkpoint->tensors());
}

std::string DescribeCheckpoint(const std::filesystem::path& folder) {
  std::unique_ptr<Checkpoint> checkpoint = OpenCheckpoint(folder);
  ModelShape shape;
  std::exception_ptr unread;  // what is described says why
  try {
    ModelConfig config = ReadModelConfig(folder);
    if (config.quantisation)
      checkpoint = DecodeCheckpoint(std::move(checkpoint), *config.quantisation);
    shape = std::move(config.shape);
  } catch (const Error&) {
    unread = std::current_exception();
    checkpoint = OpenCheckpoint(folder);
  }
  return Describe(*checkpoint, [&] {
    if (unread) std::rethrow_exception(unread);
    return shape;
  });
}

std::string DescribeModel(const Checkpoint& checkpoint, const ModelShape& shape) {
  return Describe(checkpoint, [&] { return shape; });
}

}  // namespace spillway
