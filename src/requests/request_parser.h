// RequestParser: the text of one line -> a request or the reason why it is none.
// Thread rule: const methods from any thread.
#pragma once

#include <variant>

#include "src/requests/line_source.h"  // Line
#include "src/requests/reader.h"       // ReaderOptions, RequestOrError

namespace spillway {

enum class InputForm { kJsonLines, kPlainLines };

// ".txt" in any case: one prompt a line.
InputForm FormOf(const std::filesystem::path& path);

class RequestParser {
 public:
  // Requires: options.max_positions > 0 and options.vocab_rows > 0.
  // Lifetime: the tokenizer outlives the parser.
  RequestParser(InputForm form, const Tokenizer& tokenizer, ReaderOptions options);

  // Requires: not blank.
  RequestOrError Parse(const Line& line) const;

 private:
  InputForm form_;
  const Tokenizer& tokenizer_;
  ReaderOptions options_;
};

}  // namespace spillway
