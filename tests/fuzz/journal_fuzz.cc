// A journal: the input as it is, and its lines with checksums that are right.
#include "spillway/error.h"
#include "src/answers/journal.h"
#include "tests/fuzz/framed_lines.h"
#include "tests/fuzz/fuzz_case.h"

namespace spillway::fuzz {
namespace {

void Parse(std::string_view text) {
  IsJournal(text);
  try {
    if (const auto content = ParseJournal(text, "out.jsonl.journal"))
      ManifestDigest(content->manifest);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
  }
}

}  // namespace

void Take(std::string_view bytes) {
  Parse(bytes);
  Parse(FramedLines(bytes));
}

}  // namespace spillway::fuzz
