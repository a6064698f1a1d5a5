// The line of a `score` input as a request. Plain functions; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <variant>

#include "src/requests/line_fault.h"
#include "src/requests/request_lines.h"  // ReaderOptions
#include "src/sampling/request.h"
#include "src/tokenizer/tokenizer.h"

namespace spillway {

using RequestOrFault = std::variant<Request, LineFault>;

// Reads {"text"}, {"token_ids"} or {"context", "continuation"}. Sets neither line nor custom_id.
// A text is scored from its first token after the start token on, token ids from the second on. Of
// the third form the continuation alone is scored, and tokenised as lm-eval-harness does: white
// space at the context's end is the continuation's; both are encoded together and cut at the number
// of tokens that the context has alone. A continuation without a token of its own is a fault.
// Requires: an object; options.score.
RequestOrFault ReadScoreLine(const nlohmann::json& line, const Tokenizer& tokenizer,
                             const ReaderOptions& options);

// Reads a line of text as {"text"}. Requires: valid UTF-8; options.score.
RequestOrFault ReadScoreText(std::string_view text, const Tokenizer& tokenizer,
                             const ReaderOptions& options);

}  // namespace spillway
