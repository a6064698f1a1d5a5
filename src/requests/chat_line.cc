#include "src/requests/chat_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "spillway/error.h"
#include "src/chat/chat_prompt.h"
#include "src/chat/conversation.h"
#include "src/jinja/values/fault.h"
#include "src/jinja/values/json_value.h"
#include "src/jinja/values/python_text.h"

namespace spillway {
namespace {

constexpr std::array<std::string_view, 7> kKeys = {"messages",
                                                   "tools",
                                                   "tool_choice",
                                                   "documents",
                                                   "chat_template_kwargs",
                                                   "add_generation_prompt",
                                                   "continue_final_message"};

constexpr const char* kNoTemplate = "no_chat_template";

LineFault NoTemplate() {
  return {kNoTemplate,
          "the model has no chat template for \"messages\"; give --chat-template FILE, or "
          "\"prompt\""};
}

// Among several there may be none that conversations take unasked.
LineFault NoTemplateAmong(const std::string& names) {
  if (names.empty()) return NoTemplate();
  return {kNoTemplate,
          fmt::format("the model has the chat templates {}, and none is \"default\"; give "
                      "--chat-template NAME",
                      names)};
}

// Text of the conversation. Throws: jinja::Fault, ConversationFault.
std::variant<std::string, LineFault> Rendered(Conversation conversation, const ChatReading& chat) {
  const ChatTemplate* used = chat.templates.For(!conversation.tools.Is<jinja::None>());
  if (used == nullptr) return NoTemplateAmong(chat.templates.Names());
  if (!used->takes_parts) conversation = WithPlainTexts(std::move(conversation));
  return RenderChat(*used, conversation);
}

LineFault FaultOf(const jinja::Fault& fault) {
  const std::string where =
      fault.line() > 0 ? fmt::format("chat template, line {}: ", fault.line()) : "";
  return {"chat_template", where + Printable(fault.what(), 200)};
}

// Runs what may throw one of the two.
template <typename Result, typename Run>
std::variant<Result, LineFault> OrFault(Run run) {
  try {
    return run();
  } catch (const jinja::Fault& fault) {
    return FaultOf(fault);
  } catch (const ConversationFault& fault) {
    return LineFault{fault.code(), fault.what()};
  }
}

std::variant<std::string, LineFault> RenderLine(std::string_view line, bool in_body,
                                                const ChatReading& chat) {
  return OrFault<std::string>([&] {
    const jinja::Value parsed = jinja::ValueFromJson(line);
    const jinja::Dict& object = *parsed.AsDict();
    const jinja::Dict& body = in_body ? *object.Find(std::string_view("body"))->AsDict() : object;
    return Rendered(ReadConversation(body, chat.system), chat);
  });
}

// Texts of a pair.
struct TextPair {
  std::string context;
  std::string continuation;
};

// Takes the last message off; returns its text. Throws: ConversationFault.
std::string TakeAnswer(Conversation& conversation) {
  conversation = WithPlainTexts(std::move(conversation));
  jinja::Values messages = conversation.messages.AsSequence()->items;
  const jinja::Dict& last = *messages.back().AsDict();
  const jinja::Value* content = last.Find(std::string_view("content"));
  if (*last.Find(std::string_view("role"))->AsText() != "assistant")
    throw ConversationFault("invalid_value",
                            "the last of \"messages\" must be the assistant's: it is scored");
  if (content == nullptr || content->AsText() == nullptr)
    throw ConversationFault("invalid_value",
                            "the last of \"messages\" has no \"content\" to score");
  std::string text = *content->AsText();
  messages.pop_back();
  if (messages.empty())
    throw ConversationFault("invalid_value",
                            "\"messages\" must have one before the assistant's, which is scored");
  conversation.messages = jinja::MakeList(std::move(messages));
  return text;
}

std::variant<TextPair, LineFault> RenderPair(std::string_view line, const ChatReading& chat) {
  return OrFault<TextPair>([&]() -> std::variant<TextPair, LineFault> {
    const jinja::Value parsed = jinja::ValueFromJson(line);
    Conversation conversation = ReadConversation(*parsed.AsDict(), chat.system);
    std::string answer = TakeAnswer(conversation);
    std::variant<std::string, LineFault> context = Rendered(std::move(conversation), chat);
    if (auto* fault = std::get_if<LineFault>(&context)) return std::move(*fault);
    return TextPair{std::move(std::get<std::string>(context)), std::move(answer)};
  });
}

// Needs of conversations that a run may be without.
MaybeFault CheckReading(const Tokenizer& tokenizer, const ReaderOptions& options) {
  if (options.chat == nullptr) return NoTemplate();
  if (!tokenizer.encodes_text()) {
    return LineFault{"no_tokenizer",
                     "the model has no tokenizer for \"messages\"; give \"token_ids\" or "
                     "--tokenizer"};
  }
  if (options.special_text == SpecialText::kParse) return std::nullopt;
  return LineFault{"unsupported_value",
                   "--no-parse-special does not go with \"messages\": the chat template writes "
                   "special tokens as text"};
}

}  // namespace

bool IsChatPairKey(std::string_view key) {
  return IsChatKey(key) && key != "add_generation_prompt" && key != "continue_final_message";
}

std::span<const std::string_view> ChatKeyNames() { return kKeys; }

bool IsChatKey(std::string_view key) { return std::ranges::find(kKeys, key) != kKeys.end(); }

std::variant<ChatPromptTokens, LineFault> ReadChatPrompt(std::string_view line, bool in_body,
                                                         const Tokenizer& tokenizer,
                                                         const ReaderOptions& options) {
  if (MaybeFault fault = CheckReading(tokenizer, options)) return std::move(*fault);
  std::variant<std::string, LineFault> rendered = RenderLine(line, in_body, *options.chat);
  if (auto* fault = std::get_if<LineFault>(&rendered)) return std::move(*fault);
  const std::string& text = std::get<std::string>(rendered);
  if (MaybeFault fault = CheckTextLength(text, tokenizer, options)) return std::move(*fault);
  ChatPromptTokens prompt;
  prompt.tokens = tokenizer.EncodeBare(text, SpecialText::kParse);
  if (prompt.tokens.empty())
    return LineFault{"empty_prompt", "the chat template makes no text of \"messages\""};
  prompt.opens_reasoning = jinja::Strip(text, nullptr, jinja::Side::kRight).ends_with("<think>");
  return prompt;
}

std::variant<ChatPair, LineFault> ReadChatPair(std::string_view line, const Tokenizer& tokenizer,
                                               const ReaderOptions& options) {
  if (MaybeFault fault = CheckReading(tokenizer, options)) return std::move(*fault);
  std::variant<TextPair, LineFault> rendered = RenderPair(line, *options.chat);
  if (auto* fault = std::get_if<LineFault>(&rendered)) return std::move(*fault);
  const auto& [context, continuation] = std::get<TextPair>(rendered);
  if (MaybeFault fault = CheckTextLength(continuation, tokenizer, options))
    return std::move(*fault);
  ChatPair pair = {tokenizer.EncodeBare(context, SpecialText::kParse),
                   tokenizer.EncodeBare(continuation, SpecialText::kParse)};
  if (pair.context.empty())
    return LineFault{"empty_prompt", "the chat template makes no text of \"messages\""};
  if (pair.continuation.empty())
    return LineFault{"empty_continuation", "the last of \"messages\" has no token to score"};
  return pair;
}

}  // namespace spillway
