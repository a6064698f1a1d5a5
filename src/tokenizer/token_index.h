// TokenIndex: a tokenizer's tokens by the bytes that they stand for. Thread rule: const methods
// from any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/tokenizer/tokenizer.h"

namespace spillway {

class TokenIndex {
 public:
  // Takes the bytes that tokens have within a text. Tokens without any, as special ones, are left
  // out.
  explicit TokenIndex(const Tokenizer& tokenizer);

  // Calls visit(token, num_bytes) for each token whose bytes `text` begins with, the shortest
  // first.
  template <typename F>
  void ForBeginningsOf(std::string_view text, F visit) const {
    Range range = {0, entries_.size()};
    for (std::size_t length = 1; length <= text.size(); ++length) {
      range = Narrowed(range, length - 1, text[length - 1]);
      if (range.begin == range.end) return;
      for (std::size_t at = range.begin; at < range.end && entries_[at].size == length; ++at)
        visit(entries_[at].token, length);
    }
  }

 private:
  // Sorted by bytes, then id: what begins alike lies together, the shortest first.
  struct Entry {
    std::size_t begin = 0;  // in bytes_
    std::size_t size = 0;
    TokenId token = 0;
  };
  struct Range {
    std::size_t begin;
    std::size_t end;
  };

  std::string_view BytesOf(const Entry& entry) const {
    return std::string_view(bytes_).substr(entry.begin, entry.size);
  }
  // The part of a range whose entries have that byte at `place`. Requires: they agree before it.
  Range Narrowed(const Range& range, std::size_t place, char byte) const;

  std::string bytes_;
  std::vector<Entry> entries_;
};

}  // namespace spillway
