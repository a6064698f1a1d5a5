// The line of a `score` input as a request. Plain functions; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <variant>

#include "src/requests/key_check.h"  // LineNotes
#include "src/requests/line_fault.h"
#include "src/requests/request_lines.h"  // ReaderOptions
#include "src/sampling/request.h"
#include "src/tokenizer/tokenizer.h"

namespace spillway {

using RequestOrFault = std::variant<Request, LineFault>;

// Keys of the forms below.
bool IsScoreKey(std::string_view key);

// Reads {"text"}, {"token_ids"}, {"context", "continuation"}, {"context_token_ids",
// "continuation_token_ids"} or {"messages"}. Sets neither line nor custom_id. A text is scored from
// its first token after the start token on, token ids from the second on. Of the third form the
// continuation alone is scored, and tokenised as lm-eval-harness does: white space at the context's
// end is the continuation's; both are encoded together and cut at the number of tokens that the
// context has alone. A continuation without a token of its own is a fault. Of ids the second list
// alone is scored, of messages the last one, as ReadChatPair has it. A context that leaves the
// continuation no room is cut (WithCutContext); what is all scored may not be over the model's
// positions. `text` is the line that `line` was read from. Requires: an object; options.score.
// Throws: Error kTokenizer for a chat template that cannot be read.
RequestOrFault ReadScoreLine(const nlohmann::json& line, std::string_view text,
                             const Tokenizer& tokenizer, const ReaderOptions& options,
                             LineNotes& notes);

// Reads a line of text as {"text"}. Requires: valid UTF-8; options.score.
RequestOrFault ReadScoreText(std::string_view text, const Tokenizer& tokenizer,
                             const ReaderOptions& options);

}  // namespace spillway
