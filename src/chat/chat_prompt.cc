#include "src/chat/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "src/jinja/values/fault.h"
#include "src/jinja/values/operators.h"
#include "src/jinja/values/python_text.h"

namespace spillway {
namespace {

using jinja::Dict;
using jinja::Fault;
using jinja::Value;

constexpr std::array<const char*, 3> kReasoningKeys = {"reasoning_content", "thinking",
                                                       "reasoning"};
// Stands at the end of the text that is continued; no template writes it itself.
constexpr std::string_view kTag = "SPILLWAY_CONTINUES_HERE ";

bool IsReasoning(std::string_view key) {
  return std::ranges::find(kReasoningKeys, key) != kReasoningKeys.end();
}

// Without the keys that are null, and with the reasoning under the names that templates read.
std::shared_ptr<Dict> Normalised(const Dict& message) {
  auto plain = std::make_shared<Dict>();
  for (const auto& [key, value] : message.members) {
    if (!value.Is<jinja::None>()) plain->Set(key, value);
  }
  const Value* reasoning = nullptr;
  for (const char* key : kReasoningKeys) {
    if (reasoning == nullptr) reasoning = plain->Find(std::string_view(key));
  }
  if (reasoning == nullptr) return plain;
  auto aliased = std::make_shared<Dict>();
  aliased->Set(Value("thinking"), *reasoning);
  for (const auto& [key, value] : plain->members) aliased->Set(key, value);
  aliased->Set(Value("reasoning_content"), *reasoning);
  return aliased;
}

// Marks the end of the last text of a list of parts; returns that text.
std::string TagLastPart(Value& parts) {
  jinja::Values items = jinja::ItemsOf(parts);
  for (auto item = items.rbegin(); item != items.rend(); ++item) {
    const Dict* part = item->AsDict();
    const Value* text = part == nullptr ? nullptr : part->Find(std::string_view("text"));
    if (text == nullptr || text->AsText() == nullptr) continue;
    std::string last = *text->AsText();
    auto tagged = std::make_shared<Dict>(*part);
    tagged->Set(Value("text"), Value(last + std::string(kTag)));
    *item = jinja::DictPtr(std::move(tagged));
    parts = jinja::MakeList(std::move(items));
    return last;
  }
  throw Fault("the last message has no text that could be continued");
}

// Marks where the message is to be continued; returns the text before it.
std::string TagMessage(Dict& message, const std::string& key, std::string_view source) {
  const Value* found = message.Find(std::string_view(key));
  if (found == nullptr) throw Fault(fmt::format("the last message has no \"{}\" to continue", key));
  std::vector<std::string> keys = {key};
  if (IsReasoning(key)) keys = {kReasoningKeys.begin(), kReasoningKeys.end()};
  const bool is_read = std::ranges::any_of(
      keys, [&](const std::string& name) { return source.find(name) != std::string_view::npos; });
  if (!is_read) throw Fault(fmt::format("the chat template does not read \"{}\"", key));
  if (found->AsSequence() != nullptr) {
    Value parts = *found;
    std::string last = TagLastPart(parts);
    message.Set(Value(key), std::move(parts));
    return last;
  }
  if (found->AsText() == nullptr)
    throw Fault(fmt::format("\"{}\" of the last message is no text", key));
  std::string last = *found->AsText();
  for (const std::string& name : keys) {
    const Value* copy = message.Find(std::string_view(name));
    if (copy != nullptr && copy->AsText() != nullptr && *copy->AsText() == last)
      message.Set(Value(name), Value(last + std::string(kTag)));
  }
  return last;
}

// The text up to the mark.
std::string CutAtTag(std::string text, std::string_view last) {
  const std::string_view bare = kTag.substr(0, kTag.size() - 1);
  const std::size_t at = text.rfind(bare);
  const std::string_view wanted = jinja::Strip(last, nullptr, jinja::Side::kBoth);
  if (at == std::string::npos || text.find(wanted) == std::string::npos)
    throw Fault(
        "the last message cannot be continued: the chat template leaves it out or changes "
        "it");
  const bool keeps_space = text.compare(at, kTag.size(), kTag) == 0;
  text.resize(at);
  if (keeps_space) return text;
  return std::string(jinja::Strip(text, nullptr, jinja::Side::kRight));
}

}  // namespace

std::string RenderChat(const ChatTemplate& chat, const Conversation& conversation) {
  std::vector<std::shared_ptr<Dict>> messages;
  for (const Value& message : conversation.messages.AsSequence()->items)
    messages.push_back(Normalised(*message.AsDict()));
  const bool continues = !conversation.continued_key.empty();
  std::string last;
  if (continues && messages.empty()) throw Fault("there is no message to continue");
  if (continues) last = TagMessage(*messages.back(), conversation.continued_key, chat.source);

  jinja::Values items;
  for (std::shared_ptr<Dict>& message : messages)
    items.emplace_back(jinja::DictPtr(std::move(message)));
  Dict variables = chat.special_tokens == nullptr ? Dict() : *chat.special_tokens;
  if (conversation.variables != nullptr) {
    for (const auto& [name, value] : conversation.variables->members) variables.Set(name, value);
  }
  variables.Set(Value("messages"), jinja::MakeList(std::move(items)));
  variables.Set(Value("tools"), conversation.tools);
  variables.Set(Value("documents"), conversation.documents);
  variables.Set(Value("add_generation_prompt"), conversation.add_generation_prompt);
  std::string text = chat.program.Render(variables, chat.now);
  return continues ? CutAtTag(std::move(text), last) : text;
}

}  // namespace spillway
