// Conversations as request lines state them, checked. Plain functions; any thread.
#pragma once

#include <stdexcept>
#include <string>

#include "src/chat/chat_prompt.h"
#include "src/jinja/values/value.h"

namespace spillway {

// A value of a line that cannot be taken. `code` as in the answer's error.
class ConversationFault : public std::runtime_error {
 public:
  ConversationFault(std::string code, const std::string& message)
      : std::runtime_error(message), code_(std::move(code)) {}
  const std::string& code() const { return code_; }

 private:
  std::string code_;
};

// Keys: messages, tools, tool_choice, documents, chat_template_kwargs, add_generation_prompt,
// continue_final_message. Others are passed over. `system`: text of a system message for
// conversations without one; empty: none. Arguments of calls that are JSON in a text become
// objects, as vLLM does.
// Requires: `body` has "messages". Throws: ConversationFault.
Conversation ReadConversation(const jinja::Dict& body, const std::string& system);

// The conversation with each list of text parts as one text, the parts joined by newlines.
Conversation WithPlainTexts(Conversation conversation);

}  // namespace spillway
