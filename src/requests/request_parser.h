// RequestParser: the text of one line -> a request or the reason why it is none.
// Thread rule: const methods from any thread.
#pragma once

#include <string>
#include <variant>

#include "src/requests/line_source.h"    // Line
#include "src/requests/request_lines.h"  // ReaderOptions, RequestOrError
#include "src/requests/score_line.h"     // RequestOrFault
#include "src/tokenizer/tokenizer.h"

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
  // `custom_id` is set as soon as it is known, so that a fault found later can carry it.
  RequestOrFault ParseAny(const Line& line, std::string& custom_id) const;
  RequestOrFault ParseJson(const Line& line, std::string& custom_id) const;
  RequestOrFault ParseText(const Line& line) const;

  InputForm form_;
  const Tokenizer& tokenizer_;
  ReaderOptions options_;
};

}  // namespace spillway
