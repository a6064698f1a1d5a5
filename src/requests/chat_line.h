// Lines with "messages": a conversation as a prompt. Plain functions; any thread.
#pragma once

#include <string_view>

#include "src/requests/prompt_keys.h"  // TokensOrFault
#include "src/requests/request_lines.h"
#include "src/tokenizer/tokenizer.h"

namespace spillway {

// Tells whether the key says what the conversation is, or how it is rendered.
bool IsChatKey(std::string_view key);

struct ChatPromptTokens {
  std::vector<TokenId> tokens;
  bool opens_reasoning = false;  // the prompt ends with <think>
};

// The conversation in `line`, whose body has "messages": rendered by the model's chat template and
// encoded without adding special tokens again. `in_body`: the keys stand in the line's "body".
// Requires: a line that ParseLineJson has taken.
// Throws: Error kTokenizer for a template that cannot be read.
std::variant<ChatPromptTokens, LineFault> ReadChatPrompt(std::string_view line, bool in_body,
                                                         const Tokenizer& tokenizer,
                                                         const ReaderOptions& options);

}  // namespace spillway
