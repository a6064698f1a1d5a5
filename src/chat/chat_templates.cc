#include "src/chat/chat_templates.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <ranges>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/jinja/values/fault.h"
#include "src/jinja/values/print.h"

namespace spillway {
namespace {

using jinja::Dict;
using jinja::Value;

Value OneMessage(Value content) {
  auto message = std::make_shared<Dict>();
  message->Set("role", "user");
  message->Set("content", std::move(content));
  return jinja::MakeList({jinja::DictPtr(std::move(message))});
}

// Tells whether a list of parts renders as the text in it does: then lists are given as they are,
// as transformers does; other templates get the text.
bool TakesParts(const ChatTemplate& chat) {
  constexpr const char* kText = "a text to try parts with";
  auto part = std::make_shared<Dict>();
  part->Set("type", "text");
  part->Set("text", kText);
  Conversation plain;
  plain.messages = OneMessage(kText);
  Conversation parts;
  parts.messages = OneMessage(jinja::MakeList({jinja::DictPtr(std::move(part))}));
  try {
    return RenderChat(chat, parts) == RenderChat(chat, plain);
  } catch (const jinja::Fault&) {
    return false;
  }
}

}  // namespace

ChatTemplates::ChatTemplates(const std::filesystem::path& folder, const std::string& given,
                             const std::tm& now)
    : sources_(ReadTemplateSources(folder)),
      special_tokens_(ReadTemplateTokens(folder)),
      now_(now) {
  if (given.empty()) return;
  if (sources_.contains(given)) {
    chosen_ = given;
    return;
  }
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(given, ignored)) {
    throw Error(ErrorCode::kFlag,
                fmt::format("--chat-template {}: neither a file nor the name of one of the model's "
                            "templates ({})",
                            Printable(given), sources_.empty() ? "it has none" : Names()));
  }
  sources_ = ReadGivenTemplates(given);
  if (For(false) == nullptr) {
    throw Error(ErrorCode::kFlag,
                fmt::format("--chat-template {}: has the templates {}, and none is \"default\"; "
                            "give a file of one's text",
                            Printable(given), Names()));
  }
}

const std::string* ChatTemplates::SourceFor(bool has_tools) const {
  for (const std::string& name :
       {chosen_, std::string(has_tools ? "tool_use" : ""), std::string("default")}) {
    if (name.empty()) continue;
    const auto found = sources_.find(name);
    if (found != sources_.end()) return &found->second;
  }
  return nullptr;
}

const ChatTemplate* ChatTemplates::For(bool has_tools) const {
  const std::string* source = SourceFor(has_tools);
  if (source == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  if (const auto found = read_.find(source); found != read_.end()) return &found->second;
  try {
    ChatTemplate chat = {jinja::Template(*source), *source, special_tokens_, now_};
    chat.takes_parts = TakesParts(chat);
    return &read_.emplace(source, std::move(chat)).first->second;
  } catch (const jinja::Fault& fault) {
    throw Error(ErrorCode::kTokenizer,
                fmt::format("chat template, line {}: {}; give --chat-template another one",
                            fault.line(), Printable(fault.what(), 160)));
  }
}

bool ChatTemplates::TellsTime() const {
  for (const bool has_tools : {false, true}) {
    const std::string* source = SourceFor(has_tools);
    if (source != nullptr && source->find("strftime_now") != std::string::npos) return true;
  }
  return false;
}

std::string ChatTemplates::Identity() const {
  std::string text = jinja::Repr(Value(special_tokens_));
  for (const bool has_tools : {false, true}) {
    const std::string* source = SourceFor(has_tools);
    text += source == nullptr ? "\nnone" : fmt::format("\n{} {}", source->size(), *source);
  }
  return text;
}

std::string ChatTemplates::Names() const {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> names;
  for (const auto& [name, source] : sources_)
    names.push_back(names.size() < kMost ? Printable(name, 40) : "...");
  names.resize(std::min(names.size(), kMost + 1));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace spillway
