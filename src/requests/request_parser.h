// RequestParser: the text of one line -> a request or the reason why it is none.
// Thread rule: const methods from any thread.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/requests/choice_sets.h"
#include "src/requests/input_form.h"
#include "src/requests/key_check.h"      // LineNotes
#include "src/requests/line_source.h"    // Line
#include "src/requests/request_lines.h"  // ReaderOptions, RequestOrError
#include "src/requests/score_line.h"     // RequestOrFault
#include "src/tokenizer/tokenizer.h"

namespace spillway {

// A line that was read.
struct ParsedLine {
  RequestOrError item;
  LineNotes notes;
};

class RequestParser {
 public:
  // Requires: options.max_positions > 0 and options.vocab_rows > 0.
  // Lifetime: the tokenizer outlives the parser.
  RequestParser(InputForm form, const Tokenizer& tokenizer, ReaderOptions options);

  // Requires: not blank.
  ParsedLine Parse(const Line& line) const;

 private:
  // `notes` are taken as soon as they are known, so that a fault found later can carry them.
  RequestOrFault ParseAny(const Line& line, LineNotes& notes) const;
  RequestOrFault ParseJson(const Line& line, LineNotes& notes) const;
  // `text` is the line that the object was read from.
  RequestOrFault ParseObject(const nlohmann::json& object, std::string_view text,
                             LineNotes& notes) const;
  RequestOrFault ParsePython(const nlohmann::json& object, std::string_view text,
                             LineNotes& notes) const;
  RequestOrFault ParseText(const Line& line) const;

  InputForm form_;
  const Tokenizer& tokenizer_;
  ReaderOptions options_;
  std::shared_ptr<ChoiceSets> choices_ = std::make_shared<ChoiceSets>();
};

// The custom_id of a line of JSON alone, without its text being encoded; empty where it has none
// that could be read.
std::string CustomIdOf(const Line& line);

}  // namespace spillway
