// TokenFingerprint: what two runs are compared by, the report's "fingerprint".
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "spillway/model.h"  // TokenId

struct XXH64_state_s;

namespace spillway {

// XXH64, seed 0, of all generated token ids (int32, little-endian) in input order, without marks
// between lines; bad lines add nothing.
class TokenFingerprint {
 public:
  TokenFingerprint();

  void Add(std::span<const TokenId> tokens);
  uint64_t value() const;
  std::string Hex() const;  // 16 digits

 private:
  struct Deleter {
    void operator()(XXH64_state_s* state) const;
  };
  std::unique_ptr<XXH64_state_s, Deleter> state_;
};

}  // namespace spillway
