#include "src/requests/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/base/json_text.h"
#include "src/base/strict_json.h"
#include "src/requests/body_keys.h"
#include "src/requests/chat_line.h"
#include "src/requests/cut_prompt.h"
#include "src/requests/documented_keys.h"
#include "src/requests/line_fault.h"
#include "src/requests/line_json.h"
#include "src/requests/line_text.h"
#include "src/requests/prompt_keys.h"
#include "src/requests/sampling_keys.h"
#include "src/sampling/choice_set.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr std::string_view kUrl = "/v1/completions";
constexpr std::string_view kChatUrl = "/v1/chat/completions";

// Names that other programs have for "prompt".
constexpr std::array<std::string_view, 7> kOtherPrompts = {
    "text", "input", "inputs", "instruction", "question", "input_ids", "prompt_token_ids"};

// Place of a request's keys, and their form.
struct Body {
  const json* keys = nullptr;
  bool inside = false;  // in the line's "body"
  BodyForm form = BodyForm::kCompletion;
};

bool IsSet(const json& keys, std::string_view key) { return FindSet(keys, key) != nullptr; }

std::variant<std::string, LineFault> ReadText(const json& line, const char* key) {
  const auto value = line.find(key);
  if (value == line.end()) return LineFault{"missing_key", fmt::format("has no key \"{}\"", key)};
  if (!value->is_string()) return InvalidValue(fmt::format("\"{}\" must be a string", key));
  return value->get<std::string>();
}

// Some services leave it out.
MaybeFault CheckMethod(const json& line) {
  if (FindSet(line, "method") == nullptr) return std::nullopt;
  std::variant<std::string, LineFault> method = ReadText(line, "method");
  if (auto* fault = std::get_if<LineFault>(&method)) return std::move(*fault);
  const std::string& text = std::get<std::string>(method);
  if (text == "POST") return std::nullopt;
  return LineFault{"unsupported_value",
                   fmt::format("\"method\" must be \"POST\", not \"{}\"", Printable(text))};
}

// Form that the url asks for, or where services leave it out the body.
std::variant<BodyForm, LineFault> FormOfUrl(const json& line) {
  if (FindSet(line, "url") == nullptr) {
    const json* body = FindSet(line, "body");
    const bool is_chat = body != nullptr && body->is_object() && IsSet(*body, "messages");
    return is_chat ? BodyForm::kChat : BodyForm::kCompletion;
  }
  std::variant<std::string, LineFault> url = ReadText(line, "url");
  if (auto* fault = std::get_if<LineFault>(&url)) return std::move(*fault);
  const std::string& text = std::get<std::string>(url);
  if (text.ends_with("/chat/completions")) return BodyForm::kChat;  // Azure's has no version
  if (text.ends_with("/completions")) return BodyForm::kCompletion;
  return LineFault{"unsupported_value", fmt::format("\"url\" must be \"{}\" or \"{}\", not \"{}\"",
                                                    kUrl, kChatUrl, Printable(text))};
}

// "messages" beside "prompt", or under the other url, is named as such.
MaybeFault CheckForm(const json& keys, BodyForm form) {
  const bool has_messages = IsSet(keys, "messages");
  if (form == BodyForm::kChat && !has_messages)
    return LineFault{"missing_key", "has no key \"messages\""};
  if (form == BodyForm::kCompletion && has_messages)
    return InvalidValue(fmt::format("\"messages\" belong to \"url\": \"{}\"", kChatUrl));
  for (const char* key : {"prompt", "token_ids"}) {
    if (form == BodyForm::kChat && IsSet(keys, key))
      return InvalidValue(fmt::format("has both \"messages\" and \"{}\"; give one", key));
  }
  return std::nullopt;
}

// A request's own keys stand in "body".
MaybeFault CheckBeside(const json& line, BodyForm form, bool strict, LineNotes& notes) {
  constexpr std::array<std::string_view, 2> kNear = {"custom_id", "method"};
  for (const auto& [name, value] : line.items()) {
    if (value.is_null() || IsDocumentedKey(name, form)) {
      if (MaybeFault fault = CheckDocumentedKey(name, value, form)) return fault;
    } else if (IsKeyOf(name, form)) {
      return LineFault{
          "unknown_key",
          fmt::format("unknown key \"{}\" beside \"body\"; put it into \"body\"", name)};
    }
  }
  const auto known = [&](std::string_view key) {
    return key == "custom_id" || IsBatchKey(key) || IsKeyOf(key, form);
  };
  return CheckKeys(line, {" beside \"body\"", kNear, {}, strict}, notes, known);
}

// The body of the Batch form. Requires: one of its keys is there.
std::variant<Body, LineFault> FindInside(const json& line, bool strict, LineNotes& notes) {
  if (MaybeFault fault = CheckMethod(line)) return std::move(*fault);
  std::variant<BodyForm, LineFault> form = FormOfUrl(line);
  if (auto* fault = std::get_if<LineFault>(&form)) return std::move(*fault);
  if (MaybeFault fault = CheckBeside(line, std::get<BodyForm>(form), strict, notes))
    return std::move(*fault);
  const auto body = line.find("body");
  if (body == line.end()) return LineFault{"missing_key", "has no key \"body\""};
  if (!body->is_object()) return InvalidValue("\"body\" must be an object");
  if (FindSet(*body, "custom_id") != nullptr) {
    return LineFault{"unknown_key",
                     "unknown key \"custom_id\" in \"body\"; put it beside \"body\""};
  }
  return Body{&*body, true, std::get<BodyForm>(form)};
}

// The object that holds the prompt: the line itself, or its "body" in the Batch form.
std::variant<Body, LineFault> FindBody(const json& line, bool strict, LineNotes& notes) {
  const bool is_batch = std::ranges::any_of(std::array{"method", "url", "body"},
                                            [&](const char* key) { return IsSet(line, key); });
  const BodyForm form = IsSet(line, "messages") ? BodyForm::kChat : BodyForm::kCompletion;
  std::variant<Body, LineFault> found =
      is_batch ? FindInside(line, strict, notes) : Body{&line, false, form};
  const auto* body = std::get_if<Body>(&found);
  if (body == nullptr) return found;
  if (MaybeFault fault = CheckForm(*body->keys, body->form)) return std::move(*fault);
  const auto known = [&](std::string_view key) {
    return IsKeyOf(key, body->form) || (!is_batch && key == "custom_id");
  };
  const KeyRules rules = {is_batch ? " in \"body\"" : "", NearKeys(body->form), OtherNames(),
                          strict};
  if (MaybeFault fault = CheckKeys(*body->keys, rules, notes, known)) return std::move(*fault);
  return found;
}

LineFault NoPrompt(const json& body) {
  const auto meant = std::ranges::find_if(
      kOtherPrompts, [&](std::string_view key) { return FindSet(body, key) != nullptr; });
  return {"missing_key",
          meant == kOtherPrompts.end()
              ? "has no key \"prompt\""
              : fmt::format("has no key \"prompt\"; did you mean it by \"{}\"?", *meant)};
}

// A list of one prompt is that prompt.
const json& OnlyPrompt(const json& prompt) {
  const bool one = prompt.is_array() && prompt.size() == 1;
  return one && (prompt[0].is_string() || prompt[0].is_array()) ? prompt[0] : prompt;
}

TokensOrFault ReadPrompt(const json& body, const Tokenizer& tokenizer,
                         const ReaderOptions& options) {
  const json* given = FindSet(body, "prompt");
  const json* ids = FindSet(body, "token_ids");
  if (given != nullptr && ids != nullptr)
    return InvalidValue("has both \"prompt\" and \"token_ids\"; give one");
  if (ids != nullptr) return ReadTokenIds(*ids, "token_ids", options.vocab_rows);
  if (given == nullptr && !body.contains("prompt")) return NoPrompt(body);
  static const json kNull;
  const json& prompt = given == nullptr ? kNull : OnlyPrompt(*given);
  if (prompt.is_array()) return ReadTokenIds(prompt, "prompt", options.vocab_rows);
  if (!prompt.is_string())
    return InvalidValue("\"prompt\" must be a string or a list of token ids");
  return EncodePrompt(prompt.get_ref<const std::string&>(), tokenizer, options);
}

// Tells JSON that is broken from plain text. A byte order mark has a message of its own.
bool LooksLikeObject(std::string_view line) {
  const std::size_t first = line.find_first_not_of(" \t\r");
  return first != std::string_view::npos && (line[first] == '{' || line[first] == '\xEF');
}

std::string NoObject(const ReaderOptions& options) {
  return fmt::format(
      "must be a JSON object, one on each line, like {{\"{}\":\"...\"}}; plain text is read from "
      "files whose name ends in .txt",
      options.score ? "text" : "prompt");
}

RequestOrFault MakePrompt(TokensOrFault prompt, Sampling sampling) {
  if (auto* fault = std::get_if<LineFault>(&prompt)) return std::move(*fault);
  Request request;
  request.prompt = std::move(std::get<std::vector<TokenId>>(prompt));
  request.sampling = std::move(sampling);
  return request;
}

// Whether max_tokens give way to the positions that a prompt leaves.
enum class Limit { kFixed, kYields };

Limit DefaultLimit(const ReaderOptions& options) {
  return options.max_tokens_yield ? Limit::kYields : Limit::kFixed;
}

// Positions that a prompt may take: those that the answer leaves, and all where the cache rolls. A
// limit that yields leaves half of them at least.
int64_t RoomForPrompt(Limit limit, const ReaderOptions& options, const Request& request) {
  if (options.kv.rolls) return options.max_positions;
  const int64_t max_tokens = request.sampling.max_tokens;
  const int64_t half = options.max_positions / 2;
  return options.max_positions -
         (limit == Limit::kYields ? std::min(max_tokens, half) : max_tokens);
}

// A limit that nobody stated for this row fails no row: it ends with the positions, which have no
// end where the cache rolls.
void FitMaxTokens(const ReaderOptions& options, Request& request) {
  const int64_t most = options.kv.rolls ? kMostRowTokens : options.max_positions;
  const int64_t left = most - static_cast<int64_t>(request.prompt.size());
  Sampling& sampling = request.sampling;
  sampling.max_tokens = std::clamp<int64_t>(left, 1, sampling.max_tokens);
  sampling.min_tokens = std::min(sampling.min_tokens, sampling.max_tokens);
}

MaybeFault CheckStopTokens(const Sampling& sampling, int64_t vocab_rows) {
  for (const int32_t id : sampling.stop_token_ids) {
    if (id < vocab_rows) continue;
    return LineFault{
        "token_out_of_range",
        fmt::format("\"stop_token_ids\" has {}; the model's ids are 0 to {}", id, vocab_rows - 1)};
  }
  return std::nullopt;
}

MaybeFault CheckSwitch(const json& keys, const Sampling& sampling) {
  const json* value = FindSet(keys, kSwitchKey);
  if (value == nullptr || *value == json(sampling.temperature > 0.0)) return std::nullopt;
  return LineFault{"unsupported_value",
                   fmt::format("\"{}\": {} beside a temperature of {}; give \"temperature\" alone",
                               kSwitchKey, Printable(JsonText(*value), 40), sampling.temperature)};
}

using ChoicesOrFault = std::variant<std::shared_ptr<const ChoiceSet>, LineFault>;

// What lines are read with.
struct Reading {
  const Tokenizer& tokenizer;
  const ReaderOptions& options;
  ChoiceSets& choices;
};

// The choices of an answer, null where it may be any text, and what they make of its sampling. An
// answer ends with its choice: ends of the run are for other lines, and so is its penalty, which
// would set choices back that the prompt names. A stated limit is kept, if it lets every choice
// end.
ChoicesOrFault ChoicesOf(Limit limit, const Reading& reading, Sampling& sampling) {
  if (sampling.choices.empty()) return nullptr;
  if (!reading.tokenizer.encodes_text())
    return LineFault{"no_tokenizer", "\"choices\" need the model's tokenizer"};
  std::shared_ptr<const ChoiceSet> choices =
      reading.choices.Of(sampling.choices, reading.tokenizer, reading.options.ends);
  const int64_t most = choices->MostTokens();
  if (most < 0) return InvalidValue("one of the \"choices\" cannot be spelt by the model's tokens");
  if (limit == Limit::kFixed && sampling.max_tokens < most) {
    return InvalidValue(fmt::format("\"max_tokens\" is {}, and one of the \"choices\" takes {}",
                                    sampling.max_tokens, most));
  }
  const int64_t room = choices->Room();
  sampling.max_tokens = limit == Limit::kFixed ? std::min(sampling.max_tokens, room) : room;
  sampling.choices.clear();
  sampling.stop.clear();
  sampling.stop_token_ids.clear();
  sampling.min_tokens = 0;
  sampling.ignore_eos = false;
  sampling.repetition_penalty = 1.0;
  return choices;
}

// The room that a prompt leaves must be enough for every choice.
MaybeFault CheckRoomForChoices(const Request& request) {
  if (request.choices == nullptr) return std::nullopt;
  const int64_t most = request.choices->MostTokens();
  if (request.sampling.max_tokens >= most) return std::nullopt;
  return LineFault{"context_length_exceeded",
                   fmt::format("prompt of {} tokens leaves {} for the answer, and one of the "
                               "\"choices\" takes {}; shorten the prompt",
                               request.prompt.size(), request.sampling.max_tokens, most)};
}

RequestOrFault ReadChat(std::string_view line, bool inside, Sampling sampling,
                        const Tokenizer& tokenizer, const ReaderOptions& options) {
  std::variant<ChatPromptTokens, LineFault> prompt =
      ReadChatPrompt(line, inside, tokenizer, options);
  if (auto* fault = std::get_if<LineFault>(&prompt)) return std::move(*fault);
  auto& read = std::get<ChatPromptTokens>(prompt);
  RequestOrFault made = MakePrompt(std::move(read.tokens), std::move(sampling));
  Request& request = std::get<Request>(made);
  request.body = AnswerBody::kMessage;
  request.opens_reasoning = read.opens_reasoning;
  return made;
}

// Makes prompt and answer fit in the positions, as far as they may be shortened.
void FitLengths(const std::optional<PromptCut>& cut, Limit limit, const ReaderOptions& options,
                Request& request) {
  if (cut) CutPrompt(*cut, RoomForPrompt(limit, options, request), options.start_token, request);
  if (limit == Limit::kYields) FitMaxTokens(options, request);
}

// Adds the choices to a request that was read, and makes its lengths fit.
RequestOrFault WithChoices(RequestOrFault read, std::shared_ptr<const ChoiceSet> choices,
                           Limit limit, const ReaderOptions& options,
                           const std::optional<PromptCut>& cut) {
  auto* request = std::get_if<Request>(&read);
  if (request == nullptr) return read;
  request->choices = std::move(choices);
  FitLengths(cut, limit, options, *request);
  if (MaybeFault fault = CheckRoomForChoices(*request)) return std::move(*fault);
  return read;
}

// `text` is the line that the body stands in.
RequestOrFault ReadBody(const Body& body, std::string_view text, const Reading& reading,
                        const std::optional<PromptCut>& cut) {
  const Tokenizer& tokenizer = reading.tokenizer;
  const ReaderOptions& options = reading.options;
  Sampling sampling = options.defaults;
  if (MaybeFault fault = ReadSamplingKeys(*body.keys, body.form, sampling))
    return std::move(*fault);
  if (MaybeFault fault = CheckSwitch(*body.keys, sampling)) return std::move(*fault);
  if (MaybeFault fault = CheckStopTokens(sampling, options.vocab_rows)) return std::move(*fault);
  const bool stated = IsSet(*body.keys, "max_tokens") || IsSet(*body.keys, "max_completion_tokens");
  const bool chooses = !sampling.choices.empty();
  const Limit limit = stated ? Limit::kFixed : chooses ? Limit::kYields : DefaultLimit(options);
  ChoicesOrFault choices = ChoicesOf(limit, reading, sampling);
  if (auto* fault = std::get_if<LineFault>(&choices)) return std::move(*fault);
  RequestOrFault read =
      body.form == BodyForm::kChat
          ? ReadChat(text, body.inside, std::move(sampling), tokenizer, options)
          : MakePrompt(ReadPrompt(*body.keys, tokenizer, options), std::move(sampling));
  return WithChoices(std::move(read), std::move(std::get<0>(choices)), limit, options, cut);
}

// `text` is the line that `line` was read from.
RequestOrFault ReadPromptLine(const json& line, std::string_view text, const Reading& reading,
                              LineNotes& notes) {
  const ReaderOptions& options = reading.options;
  std::variant<Body, LineFault> found = FindBody(line, options.strict, notes);
  if (auto* fault = std::get_if<LineFault>(&found)) return std::move(*fault);
  const Body& body = std::get<Body>(found);
  std::variant<std::optional<PromptCut>, LineFault> asked = CutOf(*body.keys, options.cut);
  if (auto* fault = std::get_if<LineFault>(&asked)) return std::move(*fault);
  const auto& cut = std::get<std::optional<PromptCut>>(asked);
  if (!cut || options.cut) return ReadBody(body, text, reading, cut);
  ReaderOptions of_line = options;  // its key alone asks for the cut
  of_line.cut = cut->side;
  return ReadBody(body, text, {reading.tokenizer, of_line, reading.choices}, cut);
}

}  // namespace

RequestParser::RequestParser(InputForm form, const Tokenizer& tokenizer, ReaderOptions options)
    : form_(form), tokenizer_(tokenizer), options_(std::move(options)) {
  SPILLWAY_CHECK(options_.max_positions > 0 && options_.vocab_rows > 0);
}

RequestOrFault RequestParser::ParseText(const Line& line) const {
  if (options_.score) return ReadScoreText(line.text, tokenizer_, options_);
  Sampling sampling = options_.defaults;
  const Limit limit = sampling.choices.empty() ? DefaultLimit(options_) : Limit::kYields;
  ChoicesOrFault choices = ChoicesOf(limit, {tokenizer_, options_, *choices_}, sampling);
  if (auto* fault = std::get_if<LineFault>(&choices)) return std::move(*fault);
  return WithChoices(MakePrompt(EncodePrompt(line.text, tokenizer_, options_), std::move(sampling)),
                     std::move(std::get<0>(choices)), limit, options_, CutOf(options_.cut));
}

RequestOrFault RequestParser::ParseJson(const Line& line, LineNotes& notes) const {
  const std::string_view text = WithoutOddSpace(line.text);
  std::variant<json, LineFault> parsed = ParseLineJson(text);
  if (auto* fault = std::get_if<LineFault>(&parsed)) {
    const bool is_text = fault->code == "invalid_json" && !LooksLikeObject(text);
    return is_text ? LineFault{"invalid_json", NoObject(options_)} : std::move(*fault);
  }
  const json& object = std::get<json>(parsed);
  if (!object.is_object()) return InvalidValue(NoObject(options_));
  return MentionsNonFinite(text) ? ParsePython(object, text, notes)
                                 : ParseObject(object, text, notes);
}

// A line that has NaN or Infinity, if only in a string.
RequestOrFault RequestParser::ParsePython(const json& object, std::string_view text,
                                          LineNotes& notes) const {
  auto* const is_read = options_.score ? IsReadToScore : IsReadToAnswer;
  if (MaybeFault fault = CheckNonFinite(object, is_read)) return std::move(*fault);
  return ParseObject(object, WithoutNonFinite(text).value_or(std::string(text)), notes);
}

RequestOrFault RequestParser::ParseObject(const json& object, std::string_view text,
                                          LineNotes& notes) const {
  std::variant<std::string, LineFault> id = ReadCustomId(object);
  if (auto* fault = std::get_if<LineFault>(&id)) return std::move(*fault);
  notes.custom_id = std::move(std::get<std::string>(id));
  return options_.score ? ReadScoreLine(object, text, tokenizer_, options_, notes)
                        : ReadPromptLine(object, text, {tokenizer_, options_, *choices_}, notes);
}

RequestOrFault RequestParser::ParseAny(const Line& line, LineNotes& notes) const {
  if (line.too_long) {
    return LineFault{"line_too_long", fmt::format("has {} bytes; at most {} are taken",
                                                  line.num_bytes, options_.max_line_bytes)};
  }
  if (MaybeFault fault = CheckText(line.text)) return std::move(*fault);
  RequestOrFault request =
      form_ == InputForm::kPlainLines ? ParseText(line) : ParseJson(line, notes);
  const auto* read = std::get_if<Request>(&request);
  if (read == nullptr || read->scored) return request;
  if (MaybeFault fault = CheckLength(*read, options_)) return std::move(*fault);
  return request;
}

std::string CustomIdOf(const Line& line) {
  if (line.too_long || CheckText(line.text)) return {};
  const std::variant<json, LineFault> parsed = ParseLineJson(WithoutOddSpace(line.text));
  const auto* object = std::get_if<json>(&parsed);
  if (object == nullptr || !object->is_object()) return {};
  std::variant<std::string, LineFault> id = ReadCustomId(*object);
  auto* text = std::get_if<std::string>(&id);
  return text == nullptr ? std::string() : std::move(*text);
}

ParsedLine RequestParser::Parse(const Line& line) const {
  LineNotes notes;
  RequestOrFault parsed = ParseAny(line, notes);
  if (notes.surplus && std::holds_alternative<Request>(parsed)) parsed = std::move(*notes.surplus);
  if (auto* fault = std::get_if<LineFault>(&parsed)) {
    LineError error = {line.number, notes.custom_id, std::move(fault->code),
                       fmt::format("line {}: {}", line.number, fault->message)};
    return {std::move(error), std::move(notes)};
  }
  Request& request = std::get<Request>(parsed);
  request.line = line.number;
  request.custom_id = notes.custom_id.empty() ? std::to_string(line.number) : notes.custom_id;
  return {std::move(request), std::move(notes)};
}

}  // namespace spillway
