// The regular expressions that published tokenizers take text apart with, as hand-written scanners:
// linear, no backtracking, no stack. A pattern from a file is compared with the known ones and
// never compiled. Plain functions; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace spillway {

enum class SplitPattern {
  kGpt2,    // GPT-2, OPT, GPT-NeoX
  kLlama3,  // LLaMA-3: up to three digits, contractions in any case, line ends apart
  kQwen2,   // as LLaMA-3 but single digits
};

// Regular expression of a pattern, as tokenizer.json has it.
std::string_view RegexOf(SplitPattern pattern);

// The known pattern that reads exactly so, nullopt when there is none.
std::optional<SplitPattern> FindSplitPattern(std::string_view regex);

// The end of the match that starts at `at`. Every known pattern matches everywhere, so matches
// cover the text. Requires: valid UTF-8, `at` on a boundary and inside.
std::size_t MatchEnd(SplitPattern pattern, std::string_view text, std::size_t at);

}  // namespace spillway
