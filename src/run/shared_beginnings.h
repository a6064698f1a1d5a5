// SharedBeginnings: which prompts of a pass begin with the tokens of another row of their batch, so
// that these are computed once. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "spillway/model.h"  // TokenId

namespace spillway {

// Beginnings are whole steps of so many tokens: a multiple of every KV block.
inline constexpr int64_t kBeginningStep = 32;

class SharedBeginnings {
 public:
  // A prompt by its row's place in the batch.
  struct Prompt {
    int64_t row = -1;
    std::span<const TokenId> tokens;
  };
  struct Beginning {
    int64_t row = -1;  // -1: of none
    int64_t num_tokens = 0;
  };

  void Clear();

  // Adds a prompt that later ones may begin with. Lifetime: its tokens, until Clear.
  void Add(const Prompt& prompt);

  // The longest beginning, of at most so many tokens, that an added prompt has too; the first
  // prompt's of those that have it.
  Beginning Find(std::span<const TokenId> tokens, int64_t most) const;

 private:
  static uint64_t StepHash(std::span<const TokenId> tokens, int64_t step, uint64_t before);

  std::vector<Prompt> prompts_;
  std::unordered_map<uint64_t, std::size_t> first_of_;  // hash of a beginning -> in prompts_
};

}  // namespace spillway
