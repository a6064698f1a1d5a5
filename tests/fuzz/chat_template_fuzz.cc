// A chat template, rendered for small conversations.
#include <ctime>
#include <memory>
#include <string>

#include "src/chat/chat_prompt.h"
#include "src/jinja/values/fault.h"
#include "src/jinja/values/json_value.h"
#include "src/unicode/utf8.h"
#include "tests/fuzz/fuzz_case.h"

namespace spillway::fuzz {
namespace {

constexpr std::string_view kMessages =
    R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi é"},
  {"role":"assistant","content":null,"reasoning_content":"x","tool_calls":[{"id":"a","type":"function","function":
  {"name":"f","arguments":{"n":1,"x":2.5,"l":[1,"a",null]}}}]},{"role":"tool","content":"{}","tool_call_id":"a"},
  {"role":"user","content":"Go on"}])";
constexpr std::string_view kTools =
    R"([{"type":"function","function":{"name":"f","description":"d","parameters":
  {"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}}])";
constexpr std::string_view kTokens = R"({"bos_token":"<s>","eos_token":"</s>"})";
constexpr std::string_view kVariables =
    R"({"n":7,"f":2.5,"s":"a,b","l":[3,1,2],"d":{"b":1,"a":[1]},"enable_thinking":true})";

jinja::DictPtr DictOf(std::string_view json) {
  return *jinja::ValueFromJson(json).As<jinja::DictPtr>();
}

}  // namespace

void Take(std::string_view bytes) {
  const std::string source = ReplaceInvalidUtf8(bytes);
  try {
    const ChatTemplate chat = {jinja::Template(source), source, DictOf(kTokens), std::tm()};
    Conversation conversation;
    conversation.messages = jinja::ValueFromJson(kMessages);
    conversation.tools = jinja::ValueFromJson(kTools);
    conversation.variables = DictOf(kVariables);
    RenderChat(chat, conversation);
  } catch (const jinja::Fault&) {
    // A fault of the template: it raises one, or does what it may not.
  }
}

}  // namespace spillway::fuzz
