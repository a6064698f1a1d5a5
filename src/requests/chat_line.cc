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

LineFault NoTemplate() {
  return {"no_chat_template",
          "the model has no chat template for \"messages\"; give --chat-template FILE, or "
          "\"prompt\""};
}

// Text of the conversation. Throws: jinja::Fault, ConversationFault.
std::variant<std::string, LineFault> Rendered(const jinja::Dict& body, const ChatReading& chat) {
  Conversation conversation = ReadConversation(body, chat.system);
  const ChatTemplate* used = chat.templates.For(!conversation.tools.Is<jinja::None>());
  if (used == nullptr) return NoTemplate();
  if (!used->takes_parts) conversation = WithPlainTexts(std::move(conversation));
  return RenderChat(*used, conversation);
}

LineFault FaultOf(const jinja::Fault& fault) {
  const std::string where =
      fault.line() > 0 ? fmt::format("chat template, line {}: ", fault.line()) : "";
  return {"chat_template", where + Printable(fault.what(), 200)};
}

std::variant<std::string, LineFault> RenderLine(std::string_view line, bool in_body,
                                                const ChatReading& chat) {
  try {
    const jinja::Value parsed = jinja::ValueFromJson(line);
    const jinja::Dict& object = *parsed.AsDict();
    return Rendered(in_body ? *object.Find(std::string_view("body"))->AsDict() : object, chat);
  } catch (const jinja::Fault& fault) {
    return FaultOf(fault);
  } catch (const ConversationFault& fault) {
    return LineFault{fault.code(), fault.what()};
  }
}

}  // namespace

bool IsChatKey(std::string_view key) { return std::ranges::find(kKeys, key) != kKeys.end(); }

std::variant<ChatPromptTokens, LineFault> ReadChatPrompt(std::string_view line, bool in_body,
                                                         const Tokenizer& tokenizer,
                                                         const ReaderOptions& options) {
  if (options.chat == nullptr) return NoTemplate();
  if (!tokenizer.encodes_text()) {
    return LineFault{"no_tokenizer",
                     "the model has no tokenizer for \"messages\"; give \"token_ids\" or "
                     "--tokenizer"};
  }
  if (options.special_text == SpecialText::kPlain) {
    return LineFault{"unsupported_value",
                     "--no-parse-special does not go with \"messages\": the chat template writes "
                     "special tokens as text"};
  }
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

}  // namespace spillway
