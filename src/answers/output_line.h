// One line of the output file, with its newline. Plain functions; any thread.
#pragma once

#include <string>

#include "src/answers/writer.h"  // WriterOptions
#include "src/sampling/request.h"

namespace spillway {

// The form of docs/formats.md, "Output lines"; always valid UTF-8 and one line.
std::string CompletionLine(const Request& request, const Completion& completion,
                           const Tokenizer& tokenizer, const WriterOptions& options);
// {"custom_id","logprob_sum","num_tokens","token_logprobs","greedy_match"}: nulls first, where
// tokens of the text have no score; "context_tokens_cut" too, where there are any. Requires:
// request.scored.
std::string ScoreLine(const Request& request, const Scores& scores);
// The line of an error: "error" is the same in both forms, "response" is null, or absent in a
// score.
std::string ErrorOutputLine(const LineError& error, const WriterOptions& options);

// The sum is of what the line prints, so that -infinity counts as its -9999.
ScoreTotals TotalsOf(const Scores& scores);

}  // namespace spillway
