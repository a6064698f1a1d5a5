// Lines with "messages": a conversation as a prompt. Plain functions; any thread.
#pragma once

#include <span>
#include <string_view>

#include "src/requests/prompt_keys.h"  // TokensOrFault
#include "src/requests/request_lines.h"
#include "src/tokenizer/tokenizer.h"

namespace spillway {

// Tells whether the key says what the conversation is, or how it is rendered.
bool IsChatKey(std::string_view key);
std::span<const std::string_view> ChatKeyNames();

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

// A conversation to score: the prompt that the model had before the last message, and that message.
struct ChatPair {
  std::vector<TokenId> context;
  std::vector<TokenId> continuation;
};

// The conversation in `line`, which has "messages", the last of them an assistant's. The messages
// before it are the context, rendered and encoded as ReadChatPrompt does with a generation prompt;
// its content is the continuation, encoded by itself, without what the template would put behind.
// Requires, throws: as ReadChatPrompt.
std::variant<ChatPair, LineFault> ReadChatPair(std::string_view line, const Tokenizer& tokenizer,
                                               const ReaderOptions& options);

// Tells whether the key says what a conversation to score is.
bool IsChatPairKey(std::string_view key);

}  // namespace spillway
