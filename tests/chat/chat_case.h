// Chat case: a template and a conversation in one JSON object, as the golden files and the
// comparison with transformers state them.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "src/chat/chat_prompt.h"
#include "src/jinja/values/fault.h"
#include "src/jinja/values/json_value.h"

namespace spillway {

inline jinja::Value MemberOf(const jinja::Dict& object, std::string_view key) {
  const jinja::Value* found = object.Find(key);
  return found == nullptr ? jinja::Value() : *found;
}

inline std::tm TimeOf(const jinja::Value& now) {
  std::tm time = {};
  const jinja::Sequence* parts = now.AsSequence();
  if (parts == nullptr) return time;
  const auto part = [&](std::size_t place) {
    return static_cast<int>(*parts->items[place].AsInteger());
  };
  time.tm_year = part(0) - 1900;
  time.tm_mon = part(1) - 1;
  time.tm_mday = part(2);
  time.tm_hour = part(3);
  time.tm_min = part(4);
  time.tm_sec = part(5);
  time.tm_isdst = -1;
  std::mktime(&time);
  return time;
}

inline jinja::DictPtr DictOf(const jinja::Value& value) {
  const auto* dict = value.As<jinja::DictPtr>();
  return dict == nullptr ? nullptr : *dict;
}

// {"text"} or {"error", "line"}.
inline nlohmann::json RenderedCase(const std::string& line) {
  try {
    const jinja::Value parsed = jinja::ValueFromJson(line);
    const jinja::Dict& object = *parsed.AsDict();
    const std::string source = *MemberOf(object, "template").AsText();
    const ChatTemplate chat = {jinja::Template(source), source,
                               DictOf(MemberOf(object, "special_tokens")),
                               TimeOf(MemberOf(object, "now"))};
    Conversation conversation;
    conversation.messages = MemberOf(object, "messages");
    conversation.tools = MemberOf(object, "tools");
    conversation.documents = MemberOf(object, "documents");
    conversation.variables = DictOf(MemberOf(object, "variables"));
    conversation.add_generation_prompt = MemberOf(object, "add_generation_prompt").IsTrue();
    const jinja::Value continued = MemberOf(object, "continue_final_message");
    if (continued.AsText() != nullptr) {
      conversation.continued_key = *continued.AsText();
    } else if (continued.IsTrue()) {
      conversation.continued_key = "content";
    }
    return {{"text", RenderChat(chat, conversation)}};
  } catch (const jinja::Fault& fault) {
    return {{"error", fault.what()}, {"line", fault.line()}};
  }
}

}  // namespace spillway
