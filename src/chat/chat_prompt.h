// ChatPrompt: a conversation -> the text that the model goes on from, as transformers'
// apply_chat_template makes it. Plain functions of values; any thread.
#pragma once

#include <string>
#include <string_view>

#include "src/jinja/template.h"
#include "src/jinja/values/value.h"

namespace spillway {

// Values that a template is given, beside the special tokens.
struct Conversation {
  jinja::Value messages;     // list of dicts
  jinja::Value tools;        // list of dicts, or none
  jinja::Value documents;    // list of dicts, or none
  jinja::DictPtr variables;  // chat_template_kwargs; null: none
  bool add_generation_prompt = true;
  std::string continued_key;  // of the last message: its text is left open; empty: nothing is
};

// Template with the variables that are the same for all conversations.
struct ChatTemplate {
  jinja::Template program;
  std::string source;
  jinja::DictPtr special_tokens;  // "bos_token", ...
  std::tm now = {};               // what strftime_now tells
  bool takes_parts = true;        // content may be a list of text parts
};

// The conversation as text. Keys of messages that are null are left out, and reasoning_content,
// thinking and reasoning stand for each other, as transformers does.
// Requires: messages is a list of dicts. Throws: jinja::Fault, without a line where it is about
// the conversation.
std::string RenderChat(const ChatTemplate& chat, const Conversation& conversation);

}  // namespace spillway
