// EncodeTexts: what a tokenizer that was opened must be able to do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenizer/tokenizer.h"
#include "src/unicode/utf8.h"

namespace spillway::fuzz {

// Fixed texts, and the first bytes of the target's input.
inline std::vector<std::string> TextsToEncode(std::string_view bytes) {
  return {"",
          "a",
          " Once upon a time,\r\n\t there 12345 were \xC3\xA9\xEF\xBC\xA1\xF0\x9F\x98\x80  "
          "</s><s><0x0A>",
          std::string(3000, 'a'),
          std::string(3000, ' '),
          ReplaceInvalidUtf8(bytes.substr(0, 2000))};
}

inline void EncodeTexts(const std::filesystem::path& folder, std::string_view bytes) {
  constexpr int64_t kVocabRows = 100'000;
  const auto tokenizer = OpenTokenizer(folder, kVocabRows);
  for (const std::string& text : TextsToEncode(bytes)) {
    for (const SpecialText special : {SpecialText::kParse, SpecialText::kPlain}) {
      const std::vector<TokenId> ids = tokenizer->Encode(text, special);
      tokenizer->Decode(ids);
      if (!ids.empty()) tokenizer->TokenText(ids.back());
    }
    tokenizer->LeastTokens(text);
  }
  tokenizer->Decode(std::vector<TokenId>{-1, 0, kVocabRows});
}

}  // namespace spillway::fuzz
