#include "src/run/shared_beginnings.h"

#include <algorithm>

#include "spillway/kv_block.h"
#include "src/base/hash.h"

namespace spillway {

static_assert(kBeginningStep % kKvBlockSlots == 0 && kBeginningStep % kKvCodedBlockSlots == 0);

uint64_t SharedBeginnings::StepHash(std::span<const TokenId> tokens, int64_t step,
                                    uint64_t before) {
  const auto begin = static_cast<std::size_t>(step * kBeginningStep);
  return BlockHash(std::as_bytes(tokens.subspan(begin, kBeginningStep)), before);
}

void SharedBeginnings::Clear() {
  prompts_.clear();
  first_of_.clear();
}

void SharedBeginnings::Add(const Prompt& prompt) {
  uint64_t hash = 0;
  const int64_t num_steps = std::ssize(prompt.tokens) / kBeginningStep;
  for (int64_t step = 0; step < num_steps; ++step) {
    hash = StepHash(prompt.tokens, step, hash);
    first_of_.try_emplace(hash, prompts_.size());
  }
  prompts_.push_back(prompt);
}

SharedBeginnings::Beginning SharedBeginnings::Find(std::span<const TokenId> tokens,
                                                   int64_t most) const {
  Beginning longest;
  uint64_t hash = 0;
  const int64_t num_steps = std::min(std::ssize(tokens), most) / kBeginningStep;
  for (int64_t step = 0; step < num_steps; ++step) {
    hash = StepHash(tokens, step, hash);
    const auto found = first_of_.find(hash);
    if (found == first_of_.end()) break;
    const Prompt& prompt = prompts_[found->second];
    const auto length = static_cast<std::size_t>((step + 1) * kBeginningStep);
    if (prompt.tokens.size() < length ||
        !std::ranges::equal(prompt.tokens.first(length), tokens.first(length)))
      break;  // a hash of two beginnings
    longest = {prompt.row, static_cast<int64_t>(length)};
  }
  return longest;
}

}  // namespace spillway
