// One line of the output file, with its newline. Plain functions; any thread.
#pragma once

#include <string>

#include "src/requests/request.h"
#include "src/requests/writer.h"  // WriterOptions

namespace spillway {

// Keys in cli.md's order; always valid UTF-8 and one line.
std::string CompletionLine(const Request& request, const Completion& completion,
                           const Tokenizer& tokenizer, const WriterOptions& options);
std::string ErrorOutputLine(const LineError& error, const WriterOptions& options);

}  // namespace spillway
