#include "src/verbs/run_identity.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "src/base/date_text.h"
#include "src/base/hash.h"
#include "src/base/isa.h"
#include "src/base/json_text.h"
#include "src/chat/chat_templates.h"
#include "src/config/version.h"
#include "src/formats/kv_policy_json.h"
#include "src/report/report_figures.h"
#include "src/store/companions.h"
#include "src/store/content_key.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

std::string ModelKey(const OpenedModel& model, const HashProgress& progress) {
  if (HasDummyWeights(model)) return DummyContentKey(model.shape, model.choice.seed);
  return PublishedKey(*model.checkpoint, model.folder, *model.hashes, progress);
}

std::string TokenizerKey(const OpenedModel& model) {
  if (model.tokenizer_folder.empty()) return "none";
  return HashDigits(TextHash(CompanionText(ReadCompanions({}, model.tokenizer_folder))));
}

std::string SamplingText(const Config& config) {
  const Sampling& sampling = config.sampling;
  nlohmann::ordered_json text = {{"temperature", sampling.temperature},
                                 {"top_p", sampling.top_p},
                                 {"top_k", sampling.top_k},
                                 {"max_tokens", sampling.max_tokens},
                                 {"min_tokens", sampling.min_tokens},
                                 {"stop", sampling.stop},
                                 {"stop_token_ids", sampling.stop_token_ids},
                                 {"repetition_penalty", sampling.repetition_penalty},
                                 {"ignore_eos", sampling.ignore_eos},
                                 {"logprobs", sampling.num_logprobs},
                                 {"seed", config.seed},
                                 {"parse_special", config.special_text == SpecialText::kParse}};
  if (!sampling.choices.empty()) text["choices"] = sampling.choices;
  return JsonText(text);
}

std::string ScoreText(const Config& config) {
  return config.prefill ? fmt::format("score, {} tokens", *config.prefill) : "score";
}

// Key of what conversations become, and of the form of their answers.
std::string ChatKey(const Config& config, const ChatTemplates& templates) {
  return HashDigits(TextHash(
      fmt::format("{}\n{}\n{}", templates.Identity(), config.system, config.split_reasoning)));
}

constexpr const char* kChatDate = "date of chat templates";
constexpr const char* kCpuAttention = "--cpu-attention";
constexpr std::string_view kYes = "yes";

// Beside a GPU all KV is attended to by the one or by the other (KvLeavesGpu).
bool AttendsOnCpu(const Policy& policy) {
  return policy.cpu_attention && policy.kv_frac[Tier::kGpu] < 1.0;
}

std::string ProcessorText(const Config& config, const Policy& policy, const std::string& gpu) {
  if (gpu.empty()) return std::string(kernels::IsaName(kernels::BestIsa(config.cpu_compute)));
  if (!AttendsOnCpu(policy)) return gpu;
  return fmt::format("{}, {}", gpu, kernels::IsaName(kernels::BestIsa()));
}

}  // namespace

RunManifest IdentityOf(const Config& config, const OpenedModel& model, const Policy& policy,
                       const Device& device, uint64_t input_hash, const HashProgress& progress) {
  const std::string gpu = device.name();
  RunManifest identity = {
      {"input", HashDigits(input_hash)},
      {"model", ModelKey(model, progress)},
      {"model name", ReplaceInvalidUtf8(model.shape.name)},  // it comes back from the journal
      {"tokenizer", TokenizerKey(model)},
      {"set of sampling flags", SamplingText(config)},
      {"weight type",
       fmt::format("{} bits{}", model.shape.weight_bits, PublishedCodesText(model.shape))},
      {"KV policy", JsonText(KvPolicyJson(policy.kv))},
      {"KV type", policy.kv_bits.coded() ? fmt::format("{} bits", KvBitsText(policy.kv_bits))
                                         : std::string(DTypeName(policy.kv_dtype))},
      {"spillway version", std::string(kVersion)},
      {"processor or --cpu-compute", ProcessorText(config, policy, gpu)}};
  if (config.strict) identity.emplace("--strict", kYes);
  if (config.cut) identity.emplace("--truncate", std::string(CutSideName(*config.cut)));
  if (config.shard)
    identity.emplace("shard",
                     fmt::format("{} of {}", config.shard->remainder(), config.shard->count));
  if (config.verb == Verb::kScore) identity.emplace("verb or --prefill", ScoreText(config));
  const ChatTemplates templates(model.tokenizer_folder, config.chat_template, {});
  identity.emplace("chat template or --system or --split-reasoning", ChatKey(config, templates));
  if (templates.TellsTime() && config.chat_date)
    identity.emplace(kChatDate, DateText(*config.chat_date));
  if (!gpu.empty()) identity.emplace(kCpuAttention, AttendsOnCpu(policy) ? kYes : "no");
  return identity;
}

std::optional<std::tm> ChatDateOf(const RunManifest& identity) {
  const auto found = identity.find(kChatDate);
  return found == identity.end() ? std::nullopt : ReadDateText(found->second);
}

std::vector<RunManifest> OnEarlierDays(const RunManifest& identity) {
  std::vector<RunManifest> earlier;
  if (!identity.contains(kChatDate)) return earlier;
  constexpr int kDays = 366;
  for (int day = 1; day <= kDays; ++day) {
    earlier.push_back(identity);
    earlier.back()[kChatDate] = DateText(DayBeforeToday(day));
  }
  return earlier;
}

std::optional<bool> AttendedOnCpu(const RunManifest& identity) {
  const auto found = identity.find(kCpuAttention);
  if (found == identity.end()) return std::nullopt;
  return found->second == kYes;
}

}  // namespace spillway
