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

// Norms behind the parts of a block alone.
const Names kPartsOfTwoNorms = {{"post_attention_norm", "post_attention_layernorm"},
                                {"post_ffw_norm", "post_feedforward_layernorm"}};

const Names kPartsOfGlm4 = {{"post_attention_norm", "post_self_attn_layernorm"},
                            {"post_ffw_norm", "post_mlp_layernorm"},
                            {"ffn_up", "mlp.gate_up_proj"}};

// The norm before the MLP is called by what it follows.
const Names kPartsOfSeedOss = {{"post_attention_norm", "post_attention_layernorm"}};

const Names kPartsOfPhi3 = {{"ffn_up", "mlp.gate_up_proj"}};

// Experts in stacks of gate, up and down, each by itself.
const Names kPartsOfGptOss = {
    {"attn_sinks", "self_attn.sinks"},      {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate_inp", "mlp.router"},         {"ffn_gate_exps", "mlp.experts.gate_proj"},
    {"ffn_up_exps", "mlp.experts.up_proj"}, {"ffn_down_exps", "mlp.experts.down_proj"}};

// Mixtral is a Llama with experts.
const Names kPartsOfMixtral = {{"ffn_gate_inp", "block_sparse_moe.gate"},
                               {"ffn_gate_exps", "mlp.experts.w1"},
                               {"ffn_up_exps", "mlp.experts.w3"},
                               {"ffn_down_exps", "mlp.experts.w2"}};

const Names kPartsOfGraniteExperts = {{"ffn_gate_inp", "block_sparse_moe.router.layer"},
                                      {"ffn_gate_exps", "mlp.experts.gate_proj"},
                                      {"ffn_up_exps", "mlp.experts.up_proj"},
                                      {"ffn_down_exps", "mlp.experts.down_proj"}};

const Names kPartsOfQwenExperts = {{"ffn_gate_inp", "mlp.gate"},
                                   {"ffn_gate_exps", "mlp.experts.gate_proj"},
                                   {"ffn_up_exps", "mlp.experts.up_proj"},
                                   {"ffn_down_exps", "mlp.experts.down_proj"},
                                   {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
                                   {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                                   {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                                   {"ffn_down_shexp", "mlp.shared_expert.down_proj"}};

// Experts of files of 2023, each a tensor of its own: "ffn_gate.3.weight".
const Names kPartsOfExpert = {{"ffn_gate", "w1"}, {"ffn_up", "w3"}, {"ffn_down", "w2"}};

struct Architecture {
  std::string_view name;
  const Names* own_parts = nullptr;  // before kParts
  bool pairs_together = false;
  bool one_added = false;
  const Names* lone_experts = nullptr;  // parts of an expert, where it may have tensors of its own
};

const std::array<Architecture, 17> kArchitectures = {
    {{"exaone4", &kPartsOfTwoNorms},
     {"gemma", nullptr, false, true},
     {"gemma2", &kPartsOfFourNorms, false, true},
     {"gemma3", &kPartsOfFourNorms, false, true},
     {"glm4", &kPartsOfGlm4},
     {"gpt-oss", &kPartsOfGptOss, false, false},
     {"granite", nullptr, true},
     {"granitemoe", &kPartsOfGraniteExperts, true},
     {"llama", &kPartsOfMixtral, true, false, &kPartsOfExpert},
     {"olmo2", &kPartsOfTwoNorms},
     {"phi3", &kPartsOfPhi3, false, false},
     {"qwen2", nullptr, false, false},
     {"qwen2moe", &kPartsOfQwenExperts, false, false},
     {"qwen3", nullptr, false, false},
     {"qwen3moe", &kPartsOfQwenExperts, false, false},
     {"seed_oss", &kPartsOfSeedOss},
     {"smollm3", nullptr, true}}};

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
  if (architecture.pairs_together && rotated) return GgufChange::kPairsTogether;
  return part == "ffn_gate_inp_shexp" ? GgufChange::kRowAlone : GgufChange::kNone;
}

// Parts of "blk.7.attn_q.weight", "blk.7.ffn_up.3.weight" or "output.weight".
struct NameParts {
  std::string_view layer;  // "7"; empty: none
  std::string_view part;
  std::string_view expert;  // "3"; empty: none
  std::string_view kind;    // "weight"
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
  const std::size_t digits = parts.kind.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos || parts.kind[digits] != '.') return parts;
  parts.expert = parts.kind.substr(0, digits);
  parts.kind.remove_prefix(digits + 1);
  return parts;
}

// The part of a layer; empty: the published model has none.
std::string PublishedPart(const Architecture& architecture, const NameParts& parts) {
  if (parts.expert.empty()) return std::string(PartName(architecture, parts.part));
  if (architecture.lone_experts == nullptr) return {};
  const std::string_view part = Lookup(*architecture.lone_experts, parts.part);
  if (part.empty()) return {};
  return fmt::format("block_sparse_moe.experts.{}.{}", parts.expert, part);
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
  const bool is_whole = parts.layer.empty();
  const std::string part =
      is_whole ? std::string(Lookup(kWhole, parts.part)) : PublishedPart(*known, parts);
  if (part.empty()) return std::nullopt;
  std::string name = is_whole ? part : fmt::format("model.layers.{}.{}", parts.layer, part);
  if (!part.ends_with("sinks")) name += fmt::format(".{}", parts.kind);  // published without
  return PublishedName{std::move(name), ChangeOf(*known, parts.part)};
}

}  // namespace spillway
