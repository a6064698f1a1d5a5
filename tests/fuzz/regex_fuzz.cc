// A pattern of a tokenizer's file, and behind a NUL byte the text to search.
#include <stdexcept>
#include <string>

#include "src/unicode/regex.h"
#include "src/unicode/utf8.h"
#include "tests/fuzz/fuzz_case.h"

namespace spillway::fuzz {

void Take(std::string_view bytes) {
  const std::string pattern = ReplaceInvalidUtf8(NextPart(bytes));
  const std::string text = ReplaceInvalidUtf8(bytes);
  try {
    const Regex regex(pattern);
    RegexSearch search(regex, text);
    while (search.Next()) {
    }
  } catch (const std::invalid_argument&) {
    // A part of the syntax that is not supported.
  }
}

}  // namespace spillway::fuzz
