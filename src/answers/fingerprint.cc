#include "src/answers/fingerprint.h"

#include <xxhash.h>

#include <new>

#include "spillway/error.h"
#include "src/base/hash.h"

namespace spillway {

void TokenFingerprint::Deleter::operator()(XXH64_state_s* state) const { XXH64_freeState(state); }

TokenFingerprint::TokenFingerprint() : state_(XXH64_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH64_reset(state_.get(), 0);
}

void TokenFingerprint::Add(std::span<const TokenId> tokens) {
  XXH64_update(state_.get(), tokens.data(), tokens.size_bytes());
}

uint64_t TokenFingerprint::value() const { return XXH64_digest(state_.get()); }

std::string TokenFingerprint::Hex() const { return HashDigits(value()); }

}  // namespace spillway
