#include "src/gguf/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/tokenizer/split_pattern.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr auto kTokens = "tokenizer.ggml.tokens";
constexpr auto kKind = "tokenizer.ggml.model";
constexpr std::string_view kSpace = "\u2581";

// Types of a token.
enum TokenType : int64_t { kUnknown = 2, kControl = 3, kUserDefined = 4 };

constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Splitting of texts before byte-level BPE, by tokenizer.ggml.pre.
struct Splitting {
  std::string_view name;
  std::string_view regex = {};  // empty: GPT-2's
  bool digits = false;          // each digit by itself first
  bool ignore_merges = false;   // a part that is a token is that token
  bool adds_start = false;      // where the file does not say
};

const std::array<Splitting, 19>& Splittings() {
  static const std::string_view llama3 = RegexOf(SplitPattern::kLlama3);
  static const std::string_view qwen2 = RegexOf(SplitPattern::kQwen2);
  static const std::array<Splitting, 19> all = {{{"default"},
                                                 {"gpt-2"},
                                                 {"olmo"},
                                                 {"smollm", "", true},
                                                 {"starcoder", "", true},
                                                 {"refact", "", true},
                                                 {"llama3", llama3, false, true, true},
                                                 {"llama-v3", llama3, false, true, true},
                                                 {"llama-bpe", llama3, false, true, true},
                                                 {"dbrx", llama3},
                                                 {"smaug-bpe", llama3},
                                                 {"qwen2", qwen2},
                                                 {"deepseek-r1-qwen", qwen2},
                                                 {"stablelm2", qwen2},
                                                 {"tekken", kTekken, false, true, true},
                                                 {"gpt-4o", kGpt4o},
                                                 {"glm4", llama3, false, true},
                                                 {"exaone4"},
                                                 {"seed-coder", kSeedCoder}}};
  return all;
}

[[noreturn]] void Refuse(const GgufMetadata& metadata, const std::string& what) {
  throw Error(ErrorCode::kTokenizer,
              fmt::format("{}: {}; give --tokenizer the original model's folder",
                          Printable(metadata.source()), what));
}

const Splitting& FindSplitting(const GgufMetadata& metadata) {
  const std::string name = metadata.FindText("tokenizer.ggml.pre").value_or("default");
  const auto* found = std::ranges::find(Splittings(), name, &Splitting::name);
  if (found != Splittings().end()) return *found;
  Refuse(metadata, fmt::format("\"tokenizer.ggml.pre\" is \"{}\", which is not supported",
                               Printable(name, 40)));
}

// Type of each token; all normal where the file does not say.
const std::vector<int64_t>* Types(const GgufMetadata& metadata) {
  const auto* types = metadata.FindCounts("tokenizer.ggml.token_type");
  if (types != nullptr && types->size() != metadata.Texts(kTokens).size())
    metadata.Refuse("has not as many token types as tokens");
  return types;
}

json TokenIds(const GgufMetadata& metadata) {
  json ids = json::object();
  int64_t id = 0;
  for (const std::string& token : metadata.Texts(kTokens)) ids.emplace(token, id++);
  if (static_cast<int64_t>(ids.size()) != id) metadata.Refuse("has a token twice");
  return ids;
}

// Tokens of Phi-3 that take the white space behind along.
bool TakesSpaceBehind(const GgufMetadata& metadata, std::string_view token) {
  if (metadata.Text("general.architecture") != "phi3" || metadata.Text(kKind) != "llama")
    return false;
  return token != "<unk>" && token != "<s>" && token != "<|endoftext|>";
}

template <class Wanted>
json AddedTokens(const GgufMetadata& metadata, const Wanted& wanted) {
  json added = json::array();
  const std::vector<int64_t>* types = Types(metadata);
  if (types == nullptr) return added;
  const std::vector<std::string>& tokens = metadata.Texts(kTokens);
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const int64_t type = (*types)[id];
    if (type != kControl && type != kUserDefined) continue;
    if (!wanted(tokens[id], type)) continue;
    added.push_back({{"id", id},
                     {"content", tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", TakesSpaceBehind(metadata, tokens[id])},
                     {"normalized", false},
                     {"special", type == kControl}});
  }
  return added;
}

std::optional<std::string> NamedToken(const GgufMetadata& metadata, std::string_view name) {
  const auto id = metadata.FindCount(fmt::format("tokenizer.ggml.{}_token_id", name));
  if (!id) return std::nullopt;
  const std::vector<std::string>& tokens = metadata.Texts(kTokens);
  if (*id >= static_cast<int64_t>(tokens.size()))
    metadata.Refuse(fmt::format("\"tokenizer.ggml.{}_token_id\" is {}, of {} tokens", name, *id,
                                tokens.size()));
  return tokens[static_cast<std::size_t>(*id)];
}

json SpecialToken(const std::string& name) {
  return {{"SpecialToken", {{"id", name}, {"type_id", 0}}}};
}

// Start and end token around a text, as the file says or else as its kind does.
json PostProcessor(const GgufMetadata& metadata, bool adds_start) {
  const bool start = metadata.FindFlag("tokenizer.ggml.add_bos_token").value_or(adds_start);
  const bool end = metadata.FindFlag("tokenizer.ggml.add_eos_token").value_or(false);
  json text = json::array();
  json specials = json::object();
  const auto add = [&](std::string_view name) {
    const std::optional<std::string> token = NamedToken(metadata, name);
    if (!token) return;
    text.push_back(SpecialToken(*token));
    const auto id = metadata.Count(fmt::format("tokenizer.ggml.{}_token_id", name));
    specials[*token] = {{"id", *token}, {"ids", {id}}, {"tokens", {*token}}};
  };
  if (start) add("bos");
  text.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (end) add("eos");
  if (specials.empty()) return nullptr;
  json pair = text;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return {{"type", "TemplateProcessing"},
          {"single", std::move(text)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(specials)}};
}

json ByteLevel(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

json PreTokenizer(const Splitting& splitting) {
  json steps = json::array();
  if (splitting.digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (!splitting.regex.empty()) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", splitting.regex}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back(ByteLevel(splitting.regex.empty()));
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

json ByteLevelBpe(const GgufMetadata& metadata) {
  const Splitting& splitting = FindSplitting(metadata);
  if (metadata.FindFlag("tokenizer.ggml.add_space_prefix").value_or(false))
    Refuse(metadata, "a byte-level tokenizer with a space in front is not supported");
  const auto all = [](const std::string&, int64_t) { return true; };
  return {{"version", "1.0"},
          {"added_tokens", AddedTokens(metadata, all)},
          {"normalizer", nullptr},
          {"pre_tokenizer", PreTokenizer(splitting)},
          {"post_processor", PostProcessor(metadata, splitting.adds_start)},
          {"decoder", ByteLevel(true)},
          {"model",
           {{"type", "BPE"},
            {"ignore_merges", splitting.ignore_merges},
            {"vocab", TokenIds(metadata)},
            {"merges", metadata.Texts("tokenizer.ggml.merges")}}}};
}

// A piece and its place in the order of merging.
using Places = std::unordered_map<std::string_view, std::size_t>;

// Pairs of pieces that make `token`, the earlier pieces first.
void AddMerges(std::string_view token, const Places& places, json& merges) {
  std::vector<std::pair<std::size_t, std::size_t>> found;  // places
  std::vector<std::size_t> ends;
  for (std::size_t end = 1; end < token.size(); ++end) {
    const auto left = places.find(token.substr(0, end));
    if (left == places.end()) continue;
    const auto right = places.find(token.substr(end));
    if (right == places.end()) continue;
    found.emplace_back(left->second, right->second);
    ends.push_back(end);
  }
  std::vector<std::size_t> order(found.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return found[i]; });
  for (const std::size_t i : order)
    merges.push_back({std::string(token.substr(0, ends[i])), std::string(token.substr(ends[i]))});
}

// Ids in the order of their scores, the best first; in that of their ids where there are none.
std::vector<std::size_t> ByScore(const GgufMetadata& metadata, std::size_t num_tokens) {
  std::vector<std::size_t> order(num_tokens);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::vector<double>* scores = metadata.FindNumbers("tokenizer.ggml.scores");
  if (scores == nullptr) return order;
  if (scores->size() != num_tokens) metadata.Refuse("has not as many scores as tokens");
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t id) { return (*scores)[id]; });
  return order;
}

// Merges that a SentencePiece vocabulary stands for: the best token first.
json MergesOf(const std::vector<std::string>& tokens, const GgufMetadata& metadata) {
  Places places;
  for (std::size_t id = 0; id < tokens.size(); ++id) places.emplace(tokens[id], id);
  json merges = json::array();
  for (const std::size_t id : ByScore(metadata, tokens.size()))
    AddMerges(tokens[id], places, merges);
  return merges;
}

std::string WithMarks(std::string_view token) {
  std::string marked;
  for (const char c : token) {
    if (c == ' ') {
      marked += kSpace;
    } else {
      marked += c;
    }
  }
  return marked;
}

json Replace(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

json Normalizer(bool space_in_front) {
  if (!space_in_front) return Replace(" ", kSpace);
  return {{"type", "Sequence"},
          {"normalizers", {{{"type", "Prepend"}, {"prepend", kSpace}}, Replace(" ", kSpace)}}};
}

json Decoder(bool space_in_front) {
  json steps = {Replace(kSpace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (space_in_front)
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

json SentencePieceModel(const GgufMetadata& metadata) {
  std::vector<std::string> tokens;
  for (const std::string& token : metadata.Texts(kTokens)) tokens.push_back(WithMarks(token));
  json vocab = json::object();
  for (std::size_t id = 0; id < tokens.size(); ++id) vocab.emplace(tokens[id], id);
  const std::optional<std::string> unknown = NamedToken(metadata, "unknown");
  return {{"type", "BPE"},
          {"unk_token", unknown ? json(*unknown) : json(nullptr)},
          {"fuse_unk", true},
          {"byte_fallback", true},
          {"vocab", std::move(vocab)},
          {"merges", MergesOf(tokens, metadata)}};
}

json SentencePieceBpe(const GgufMetadata& metadata) {
  const bool space = metadata.FindFlag("tokenizer.ggml.add_space_prefix").value_or(true);
  // Runs of spaces come to the model as marks, so that merges make them.
  const auto wanted = [](const std::string& token, int64_t type) {
    return type == kControl ||
           (token.find(' ') == std::string::npos && token.find(kSpace) == std::string::npos);
  };
  return {{"version", "1.0"},
          {"added_tokens", AddedTokens(metadata, wanted)},
          {"normalizer", Normalizer(space)},
          {"pre_tokenizer", nullptr},
          {"post_processor", PostProcessor(metadata, true)},
          {"decoder", Decoder(space)},
          {"model", SentencePieceModel(metadata)}};
}

}  // namespace

bool HasGgufTokenizer(const GgufMetadata& metadata) {
  return metadata.Has(kTokens) && metadata.FindText(kKind).value_or("no_vocab") != "no_vocab";
}

json GgufTokenizerJson(const GgufMetadata& metadata) {
  const std::string kind = metadata.Text(kKind);
  if (kind == "gpt2") return ByteLevelBpe(metadata);
  if (kind == "llama") return SentencePieceBpe(metadata);
  Refuse(metadata,
         fmt::format("\"{}\" is \"{}\", supported are gpt2 and llama", kKind, Printable(kind, 40)));
}

json GgufTokenizerSettings(const GgufMetadata& metadata) {
  json settings = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                   {"clean_up_tokenization_spaces", false}};
  constexpr std::array<std::pair<const char*, const char*>, 4> kNamed = {
      {{"bos_token", "bos"},
       {"eos_token", "eos"},
       {"unk_token", "unknown"},
       {"pad_token", "padding"}}};
  for (const auto& [key, name] : kNamed) {
    if (const auto token = NamedToken(metadata, name)) settings[key] = *token;
  }
  if (const auto text = metadata.FindText("tokenizer.chat_template"))
    settings["chat_template"] = *text;
  return settings;
}

}  // namespace spillway
