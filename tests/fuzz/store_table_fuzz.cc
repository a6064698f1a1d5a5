// The table of a store: the input as it is, and with a seal that is right.
#include <string>

#include "spillway/error.h"
#include "src/store/store_table.h"
#include "tests/fuzz/fuzz_case.h"

namespace spillway::fuzz {
namespace {

void Parse(std::string_view text) {
  try {
    ParseStoreTable(text);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
  }
}

}  // namespace

void Take(std::string_view bytes) {
  Parse(bytes);
  const std::size_t body = bytes.find("\"store\":");
  if (body != std::string_view::npos) Parse(SealStoreText(bytes.substr(body)));
}

}  // namespace spillway::fuzz
