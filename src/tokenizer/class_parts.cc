#include "src/tokenizer/class_parts.h"

#include <algorithm>
#include <array>
#include <utility>

namespace spillway {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
constexpr std::string_view kFilesOwn = "TokenizersBackend";

struct ModelType {
  std::string_view model_type;
  std::string_view tokenizer_class;
  bool beats_named = false;  // published folders name a wrong class
};

// Classes that transformers 5 registers for a type of model; kFilesOwn: the files as they are, even
// where they name a class.
constexpr std::array kModelTypes = {ModelType{"opt", "GPT2Tokenizer"},
                                    ModelType{"gpt2", "GPT2Tokenizer"},
                                    ModelType{"gptj", "GPT2Tokenizer"},
                                    ModelType{"phi", "GPT2Tokenizer"},
                                    ModelType{"starcoder2", "GPT2Tokenizer"},
                                    ModelType{"gpt_neox", "GPTNeoXTokenizer"},
                                    ModelType{"olmo", "GPTNeoXTokenizer"},
                                    ModelType{"qwen2", "Qwen2Tokenizer", true},
                                    ModelType{"qwen3", "Qwen2Tokenizer"},
                                    ModelType{"qwen2_moe", "Qwen2Tokenizer"},
                                    ModelType{"qwen3_moe", "Qwen2Tokenizer"},
                                    ModelType{"qwen3_next", "Qwen2Tokenizer"},
                                    ModelType{"gemma", "GemmaTokenizer"},
                                    ModelType{"gemma2", "GemmaTokenizer"},
                                    ModelType{"gemma3", "GemmaTokenizer"},
                                    ModelType{"gemma3_text", "GemmaTokenizer"},
                                    ModelType{"mistral", kFilesOwn},
                                    ModelType{"mistral3", kFilesOwn},
                                    ModelType{"mixtral", kFilesOwn},
                                    ModelType{"ministral", kFilesOwn},
                                    ModelType{"ministral3", kFilesOwn},
                                    ModelType{"phi3", kFilesOwn},
                                    ModelType{"phimoe", kFilesOwn},
                                    ModelType{"olmo2", kFilesOwn},
                                    ModelType{"olmo3", kFilesOwn},
                                    ModelType{"granite", kFilesOwn},
                                    ModelType{"granitemoe", kFilesOwn},
                                    ModelType{"granitemoehybrid", kFilesOwn},
                                    ModelType{"stablelm", kFilesOwn},
                                    ModelType{"glm4", kFilesOwn}};

constexpr std::array kClasses = {std::pair{"GPT2Tokenizer", ClassParts::kGpt2},
                                 std::pair{"GPTNeoXTokenizer", ClassParts::kGptNeoX},
                                 std::pair{"LlamaTokenizer", ClassParts::kLlama},
                                 std::pair{"Qwen2Tokenizer", ClassParts::kQwen2},
                                 std::pair{"GemmaTokenizer", ClassParts::kGemma}};

struct TokenDefault {
  ClassParts parts;
  std::string_view key;
  std::string_view token;
};

constexpr std::array kDefaults = {TokenDefault{ClassParts::kLlama, "bos_token", "<s>"},
                                  TokenDefault{ClassParts::kLlama, "eos_token", "</s>"},
                                  TokenDefault{ClassParts::kLlama, "unk_token", "<unk>"},
                                  TokenDefault{ClassParts::kGpt2, "bos_token", "<|endoftext|>"},
                                  TokenDefault{ClassParts::kGpt2, "eos_token", "<|endoftext|>"},
                                  TokenDefault{ClassParts::kGpt2, "unk_token", "<|endoftext|>"},
                                  TokenDefault{ClassParts::kGptNeoX, "bos_token", "<|endoftext|>"},
                                  TokenDefault{ClassParts::kGptNeoX, "eos_token", "<|endoftext|>"},
                                  TokenDefault{ClassParts::kGptNeoX, "unk_token", "<|endoftext|>"},
                                  TokenDefault{ClassParts::kGptNeoX, "pad_token", "<|padding|>"},
                                  TokenDefault{ClassParts::kQwen2, "eos_token", "<|endoftext|>"},
                                  TokenDefault{ClassParts::kQwen2, "unk_token", "<|endoftext|>"},
                                  TokenDefault{ClassParts::kQwen2, "pad_token", "<|endoftext|>"},
                                  TokenDefault{ClassParts::kGemma, "bos_token", "<bos>"},
                                  TokenDefault{ClassParts::kGemma, "eos_token", "<eos>"},
                                  TokenDefault{ClassParts::kGemma, "unk_token", "<unk>"},
                                  TokenDefault{ClassParts::kGemma, "pad_token", "<pad>"},
                                  TokenDefault{ClassParts::kGemma, "mask_token", "<mask>"}};

Decoder PieceDecoder() {
  Decoder decoder;
  decoder.replace = ReplaceStep{std::string(kSpaceMark), " "};
  decoder.byte_fallback = true;
  return decoder;
}

void ApplyLlama(const FolderSettings& settings, BpeParts& parts) {
  const bool prefix = settings.add_prefix_space.value_or(true);
  MetaspaceStep step;
  step.split = false;
  using Prepend = MetaspaceStep::Prepend;
  const bool legacy = settings.legacy.value_or(false);
  step.prepend = !prefix ? Prepend::kNever : legacy ? Prepend::kAlways : Prepend::kFirst;
  parts.pre_tokenizer.emplace_back(step);
  parts.decoder = PieceDecoder();
  parts.decoder.strip = std::string(1, ' ');
  parts.decoder.strip_start = prefix ? 1 : 0;
}

void ApplyGemma(BpeParts& parts) {
  parts.normalizer.emplace_back(ReplaceStep{" ", std::string(kSpaceMark)});
  parts.decoder = PieceDecoder();
}

void ApplyByteLevel(ClassParts kind, const FolderSettings& settings, BpeParts& parts) {
  const bool is_qwen = kind == ClassParts::kQwen2;
  if (is_qwen) parts.pre_tokenizer.emplace_back(SplitStep{SplitPattern::kQwen2});
  parts.pre_tokenizer.emplace_back(
      ByteLevelStep{settings.add_prefix_space.value_or(false), !is_qwen});
  parts.decoder = Decoder{.byte_level = true};
  if (kind != ClassParts::kGpt2) parts.normalizer.emplace_back(FormStep{UnicodeForm::kNfc});
  if (kind != ClassParts::kGptNeoX) return;
  parts.start.clear();
  parts.end.clear();
}

}  // namespace

std::string ClassOf(std::string named, std::string_view model_type) {
  if (named.ends_with("Fast")) named.resize(named.size() - 4);
  const auto* registered =
      std::find_if(kModelTypes.begin(), kModelTypes.end(),
                   [&](const ModelType& type) { return type.model_type == model_type; });
  if (registered == kModelTypes.end()) return named;
  if (registered->tokenizer_class == kFilesOwn) return "";
  const bool keeps_named = !named.empty() && !registered->beats_named;
  return keeps_named ? named : std::string(registered->tokenizer_class);
}

std::string_view DefaultToken(std::string_view tokenizer_class, std::string_view key) {
  const ClassParts parts = PartsOf(tokenizer_class);
  for (const TokenDefault& entry : kDefaults) {
    if (entry.parts == parts && entry.key == key) return entry.token;
  }
  return "";
}

ClassParts PartsOf(std::string_view tokenizer_class) {
  for (const auto& [name, parts] : kClasses) {
    if (name == tokenizer_class) return parts;
  }
  return ClassParts::kAsInFile;
}

BpeOptions OptionsOf(ClassParts parts, const FolderSettings& settings) {
  BpeOptions options;
  options.fuse_unknown = options.byte_fallback =
      parts == ClassParts::kLlama || parts == ClassParts::kGemma;
  if (parts == ClassParts::kGemma && !settings.unk.empty()) options.unknown = settings.unk;
  return options;
}

void ApplyClass(ClassParts kind, const FolderSettings& settings, BpeParts& parts) {
  if (kind == ClassParts::kAsInFile) return;
  parts.normalizer.clear();
  parts.pre_tokenizer.clear();
  if (kind == ClassParts::kLlama) {
    ApplyLlama(settings, parts);
  } else if (kind == ClassParts::kGemma) {
    ApplyGemma(parts);
  } else {
    ApplyByteLevel(kind, settings, parts);
  }
}

}  // namespace spillway
