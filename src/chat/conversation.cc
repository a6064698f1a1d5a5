#include "src/chat/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "spillway/error.h"
#include "src/base/strict_json.h"
#include "src/jinja/values/json_value.h"
#include "src/jinja/values/print.h"

namespace spillway {
namespace {

using jinja::Dict;
using jinja::DictPtr;
using jinja::Sequence;
using jinja::Value;

[[noreturn]] void Invalid(const std::string& message) {
  throw ConversationFault("invalid_value", message);
}

[[noreturn]] void Unsupported(const std::string& message) {
  throw ConversationFault("unsupported_value", message);
}

// Null where it is absent or null.
const Value* FindSet(const Dict& object, std::string_view key) {
  const Value* found = object.Find(key);
  return found == nullptr || found->Is<jinja::None>() ? nullptr : found;
}

// A part of a content; `where` names the message.
void CheckPart(const Value& part, const std::string& where) {
  const Dict* object = part.AsDict();
  if (object == nullptr) Invalid(where + ": a part of \"content\" must be an object");
  const Value* type = object->Find(std::string_view("type"));
  if (type == nullptr || type->AsText() == nullptr)
    Invalid(where + ": a part of \"content\" has no \"type\"");
  if (*type->AsText() != "text") {
    throw ConversationFault("unsupported_content",
                            fmt::format("{}: a part of type \"{}\" is not supported, only \"text\"",
                                        where, Printable(*type->AsText())));
  }
  const Value* text = object->Find(std::string_view("text"));
  if (text == nullptr || text->AsText() == nullptr)
    Invalid(where + ": a part of type \"text\" has no \"text\"");
}

void CheckContent(const Value& content, const std::string& where) {
  const Sequence* parts = content.AsSequence();
  if (content.AsText() != nullptr) return;
  if (parts == nullptr) Invalid(where + ": \"content\" must be a string or a list of text parts");
  for (const Value& part : parts->items) CheckPart(part, where);
}

// {"function": {"name", "arguments": "{...}"}} with the arguments as an object.
Value WithReadArguments(const Value& call, const std::string& where) {
  const Dict* object = call.AsDict();
  if (object == nullptr) Invalid(where + ": an item of \"tool_calls\" must be an object");
  const Value* function = FindSet(*object, "function");
  if (function == nullptr || function->AsDict() == nullptr) return call;
  const Value* arguments = FindSet(*function->AsDict(), "arguments");
  if (arguments == nullptr || arguments->AsText() == nullptr) return call;
  constexpr std::size_t kMaxValues = 100'000;
  const auto parsed = ParseStrictJson(*arguments->AsText(), kMaxValues);
  const auto* json = std::get_if<nlohmann::json>(&parsed);
  if (json == nullptr || !json->is_object()) return call;
  auto read = std::make_shared<Dict>(*function->AsDict());
  read->Set("arguments", jinja::ValueFromJson(*arguments->AsText()));
  auto changed = std::make_shared<Dict>(*object);
  changed->Set("function", DictPtr(std::move(read)));
  return DictPtr(std::move(changed));
}

Value ReadMessage(const Value& message, std::size_t place) {
  const std::string where = fmt::format("messages[{}]", place);
  const Dict* object = message.AsDict();
  if (object == nullptr) Invalid(where + " must be an object");
  const Value* role = object->Find(std::string_view("role"));
  if (role == nullptr || role->AsText() == nullptr)
    Invalid(where + " must have a \"role\", a string");
  if (const Value* content = FindSet(*object, "content")) CheckContent(*content, where);
  const Value* calls = FindSet(*object, "tool_calls");
  if (calls == nullptr) return message;
  if (calls->AsSequence() == nullptr) Invalid(where + ": \"tool_calls\" must be a list");
  jinja::Values read;
  for (const Value& call : calls->AsSequence()->items)
    read.push_back(WithReadArguments(call, where));
  auto changed = std::make_shared<Dict>(*object);
  changed->Set("tool_calls", jinja::MakeList(std::move(read)));
  return DictPtr(std::move(changed));
}

bool IsSystem(const Value& message) {
  const std::string& role = *message.AsDict()->Find(std::string_view("role"))->AsText();
  return role == "system" || role == "developer";
}

Value ReadMessages(const Value& messages, const std::string& system) {
  const Sequence* list = messages.AsSequence();
  if (list == nullptr || list->items.empty())
    Invalid("\"messages\" must be a list of at least one message");
  jinja::Values read;
  for (std::size_t place = 0; place < list->items.size(); ++place)
    read.push_back(ReadMessage(list->items[place], place));
  if (system.empty() || std::ranges::any_of(read, IsSystem)) return jinja::MakeList(read);
  auto message = std::make_shared<Dict>();
  message->Set("role", "system");
  message->Set("content", system);
  read.insert(read.begin(), DictPtr(std::move(message)));
  return jinja::MakeList(std::move(read));
}

// A list of objects; none where it is absent, null or empty.
Value ReadObjects(const Dict& body, const std::string& key) {
  const Value* list = FindSet(body, key);
  if (list == nullptr) return {};
  const bool is_fine = list->AsSequence() != nullptr &&
                       std::ranges::all_of(list->AsSequence()->items, [](const Value& item) {
                         return item.AsDict() != nullptr;
                       });
  if (!is_fine) Invalid(fmt::format("\"{}\" must be a list of objects", key));
  return list->AsSequence()->items.empty() ? Value() : *list;
}

// Calls stay text, so that nothing can be required of them; "none" leaves the tools out.
Value ReadTools(const Dict& body) {
  Value tools = ReadObjects(body, "tools");
  const Value* choice = FindSet(body, "tool_choice");
  if (choice == nullptr) return tools;
  const std::string* word = choice->AsText();
  if (word != nullptr && *word == "none") return {};
  if (word != nullptr && *word == "auto") return tools;
  Unsupported("\"tool_choice\" is supported as \"auto\" or \"none\"");
}

DictPtr ReadVariables(const Dict& body) {
  const Value* variables = FindSet(body, "chat_template_kwargs");
  if (variables == nullptr) return nullptr;
  if (variables->AsDict() == nullptr) Invalid("\"chat_template_kwargs\" must be an object");
  static constexpr std::array kOwn = {"messages", "tools", "documents", "add_generation_prompt",
                                      "continue_final_message"};
  for (const char* key : kOwn) {
    if (variables->AsDict()->Find(std::string_view(key)) != nullptr)
      Invalid(fmt::format("\"{}\" stands beside \"chat_template_kwargs\", not in it", key));
  }
  return *variables->As<DictPtr>();
}

bool ReadFlag(const Dict& body, const std::string& key, bool fallback) {
  const Value* flag = FindSet(body, key);
  if (flag == nullptr) return fallback;
  if (flag->As<bool>() == nullptr) Invalid(fmt::format("\"{}\" must be true or false", key));
  return *flag->As<bool>();
}

// true: the content; a string: that key.
std::string ReadContinued(const Dict& body) {
  const Value* flag = FindSet(body, "continue_final_message");
  if (flag != nullptr && flag->AsText() != nullptr) return *flag->AsText();
  return ReadFlag(body, "continue_final_message", false) ? "content" : "";
}

}  // namespace

Conversation ReadConversation(const Dict& body, const std::string& system) {
  Conversation conversation;
  const Value* messages = FindSet(body, "messages");
  if (messages == nullptr) Invalid("\"messages\" must be a list of at least one message");
  conversation.messages = ReadMessages(*messages, system);
  conversation.tools = ReadTools(body);
  conversation.documents = ReadObjects(body, "documents");
  conversation.variables = ReadVariables(body);
  conversation.continued_key = ReadContinued(body);
  const bool continues = !conversation.continued_key.empty();
  conversation.add_generation_prompt = ReadFlag(body, "add_generation_prompt", !continues);
  if (continues && conversation.add_generation_prompt)
    Invalid("\"continue_final_message\" and \"add_generation_prompt\" exclude each other");
  return conversation;
}

Conversation WithPlainTexts(Conversation conversation) {
  jinja::Values messages = conversation.messages.AsSequence()->items;
  for (Value& message : messages) {
    const Dict& object = *message.AsDict();
    const Value* content = FindSet(object, "content");
    if (content == nullptr || content->AsSequence() == nullptr) continue;
    std::string text;
    for (const Value& part : content->AsSequence()->items) {
      if (&part != &content->AsSequence()->items.front()) text += '\n';
      text += *part.AsDict()->Find(std::string_view("text"))->AsText();
    }
    auto changed = std::make_shared<Dict>(object);
    changed->Set("content", std::move(text));
    message = DictPtr(std::move(changed));
  }
  conversation.messages = jinja::MakeList(std::move(messages));
  return conversation;
}

}  // namespace spillway
