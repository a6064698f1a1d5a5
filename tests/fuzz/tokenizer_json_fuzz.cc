// tokenizer.json, and texts encoded with it.
#include "tests/fuzz/encode_texts.h"
#include "tests/fuzz/fuzz_case.h"

namespace spillway::fuzz {

void Take(std::string_view bytes) {
  static const Folder folder;
  folder.Write("tokenizer.json", bytes);
  EncodeTexts(folder.path(), bytes);
}

}  // namespace spillway::fuzz
