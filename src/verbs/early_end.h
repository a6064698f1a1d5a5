// EarlyEnd: what is said of a run that ends before its time: where its finished lines are, how it
// goes on, and how far its next answer was. Plain functions; the main thread.
#pragma once

#include <optional>

#include "spillway/error.h"
#include "src/answers/writer.h"
#include "src/config/config.h"

namespace spillway {

// The error of a run whose finished lines have been flushed. `to_answer_s`: until its next answer;
// nullopt: not known. Lines that are finished and not named were lost with the error's cause.
Error EarlyEnd(const Error& error, const CompletionWriter& writer, const Config& config,
               std::optional<double> to_answer_s);

}  // namespace spillway
