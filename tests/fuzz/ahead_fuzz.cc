// Answers that wait, OUT.ahead: the input as it is, and its lines with checksums that are right.
#include "src/answers/ahead_lines.h"
#include "tests/fuzz/framed_lines.h"
#include "tests/fuzz/fuzz_case.h"

namespace spillway::fuzz {

void Take(std::string_view bytes) {
  constexpr const char* kDigest = "0123456789abcdef";
  IsAhead(bytes);
  ParseAhead(bytes, kDigest);
  ParseAhead(FramedLines(bytes), kDigest);
}

}  // namespace spillway::fuzz
