// vocab.json, merges.txt, tokenizer_config.json and special_tokens_map.json, divided by NUL bytes.
#include "tests/fuzz/encode_texts.h"
#include "tests/fuzz/fuzz_case.h"

namespace spillway::fuzz {

void Take(std::string_view bytes) {
  static const Folder folder;
  std::string_view rest = bytes;
  folder.Write("vocab.json", NextPart(rest));
  folder.Write("merges.txt", NextPart(rest));
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "config.json"}) {
    folder.Remove(name);
    if (!rest.empty()) folder.Write(name, NextPart(rest));
  }
  EncodeTexts(folder.path(), bytes);
}

}  // namespace spillway::fuzz
