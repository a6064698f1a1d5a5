#include "src/gguf/gguf_tensor_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace spillway {
namespace {

using Names = std::map<std::string_view, std::string_view>;

const Names kWhole = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};

// Parts of a layer of Llama's kind.
const Names kParts = {{"attn_norm", "input_layernorm"},
                      {"attn_q", "self_attn.q_proj"},
                      {"attn_k", "self_attn.k_proj"},
                      {"attn_v", "self_attn.v_proj"},
                      {"attn_qkv", "self_attn.qkv_proj"},
                      {"attn_output", "self_attn.o_proj"},
                      {"attn_q_norm", "self_attn.q_norm"},
                      {"attn_k_norm", "self_attn.k_norm"},
                      {"ffn_norm", "post_attention_layernorm"},
                      {"ffn_gate", "mlp.gate_proj"},
                      {"ffn_up", "mlp.up_proj"},
                      {"ffn_down", "mlp.down_proj"}};

// Parts that are called otherwise where norms stand behind a block too.
const Names kPartsOfFourNorms = {{"post_attention_norm", "post_attention_layernorm"},
                                 {"ffn_norm", "pre_feedforward_layernorm"},
                                 {"post_ffw_norm", "post_feedforward_layernorm"}};

const Names kPartsOfPhi3 = {{"ffn_up", "mlp.gate_up_proj"}};

// Experts in stacks of gate, up and down, each by itself.
const Names kPartsOfGptOss = {
    {"attn_sinks", "self_attn.sinks"},      {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate_inp", "mlp.router"},         {"ffn_gate_exps", "mlp.experts.gate_proj"},
    {"ffn_up_exps", "mlp.experts.up_proj"}, {"ffn_down_exps", "mlp.experts.down_proj"}};

struct Architecture {
  std::string_view name;
  const Names* own_parts = nullptr;  // before kParts
  bool pairs_together = false;
  bool one_added = false;
};

const std::array<Architecture, 8> kArchitectures = {{{"gemma", nullptr, false, true},
                                                     {"gemma2", &kPartsOfFourNorms, false, true},
                                                     {"gemma3", &kPartsOfFourNorms, false, true},
                                                     {"gpt-oss", &kPartsOfGptOss, false, false},
                                                     {"llama", nullptr, true, false},
                                                     {"phi3", &kPartsOfPhi3, false, false},
                                                     {"qwen2", nullptr, false, false},
                                                     {"qwen3", nullptr, false, false}}};

const Architecture* FindArchitecture(std::string_view name) {
  const auto* found = std::ranges::find(kArchitectures, name, &Architecture::name);
  return found == kArchitectures.end() ? nullptr : found;
}

std::string_view Lookup(const Names& names, std::string_view name) {
  const auto found = names.find(name);
  return found == names.end() ? std::string_view() : found->second;
}

std::string_view PartName(const Architecture& architecture, std::string_view part) {
  if (architecture.own_parts != nullptr) {
    const std::string_view own = Lookup(*architecture.own_parts, part);
    if (!own.empty()) return own;
  }
  return Lookup(kParts, part);
}

GgufChange ChangeOf(const Architecture& architecture, std::string_view part) {
  if (architecture.one_added && part.ends_with("norm")) return GgufChange::kOneAdded;
  const bool rotated = part == "attn_q" || part == "attn_k";
  return architecture.pairs_together && rotated ? GgufChange::kPairsTogether : GgufChange::kNone;
}

// Parts of "blk.7.attn_q.weight" or "output.weight".
struct NameParts {
  std::string_view layer;  // "7"; empty: none
  std::string_view part;
  std::string_view kind;  // "weight"
};

NameParts SplitName(std::string_view name) {
  NameParts parts;
  constexpr std::string_view kLayers = "blk.";
  if (name.starts_with(kLayers)) {
    name.remove_prefix(kLayers.size());
    parts.layer = name.substr(0, name.find('.'));
    name.remove_prefix(std::min(name.size(), parts.layer.size() + 1));
  }
  const std::size_t dot = name.find('.');
  parts.part = name.substr(0, dot);
  if (dot != std::string_view::npos) parts.kind = name.substr(dot + 1);
  return parts;
}

}  // namespace

bool IsGgufArchitecture(std::string_view architecture) {
  return FindArchitecture(architecture) != nullptr;
}

std::string GgufArchitectures() {
  std::array<std::string_view, kArchitectures.size()> names;
  std::ranges::transform(kArchitectures, names.begin(), &Architecture::name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::optional<PublishedName> PublishedNameOf(std::string_view architecture,
                                             std::string_view gguf_name) {
  const Architecture* known = FindArchitecture(architecture);
  const NameParts parts = SplitName(gguf_name);
  if (known == nullptr || (parts.kind != "weight" && parts.kind != "bias")) return std::nullopt;
  const std::string_view part =
      parts.layer.empty() ? Lookup(kWhole, parts.part) : PartName(*known, parts.part);
  if (part.empty()) return std::nullopt;
  const std::string layer =
      parts.layer.empty() ? std::string() : fmt::format("model.layers.{}.", parts.layer);
  std::string name = layer + std::string(part);
  if (!part.ends_with("sinks")) name += fmt::format(".{}", parts.kind);  // published without
  return PublishedName{std::move(name), ChangeOf(*known, parts.part)};
}

}  // namespace spillway
