#include "src/tokenizer/token_index.h"

#include <algorithm>
#include <tuple>

namespace spillway {

TokenIndex::TokenIndex(const Tokenizer& tokenizer) {
  for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) {
    const std::size_t begin = bytes_.size();
    tokenizer.AppendBytes(token, /*first=*/false, bytes_);
    if (bytes_.size() > begin) entries_.push_back({begin, bytes_.size() - begin, token});
  }
  std::ranges::sort(entries_, [&](const Entry& a, const Entry& b) {
    return std::tuple(BytesOf(a), a.token) < std::tuple(BytesOf(b), b.token);
  });
}

TokenIndex::Range TokenIndex::Narrowed(const Range& range, std::size_t place, char byte) const {
  const auto wanted = static_cast<int>(static_cast<unsigned char>(byte));
  // Entries that end before the place come first.
  const auto byte_of = [&](const Entry& entry) {
    return place < entry.size
               ? static_cast<int>(static_cast<unsigned char>(bytes_[entry.begin + place]))
               : -1;
  };
  const auto begin = entries_.begin() + static_cast<std::ptrdiff_t>(range.begin);
  const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(range.end);
  // ranges::equal_range returns a view, which clang before 16 does not compile with GCC's library.
  const auto first = std::ranges::lower_bound(begin, end, wanted, {}, byte_of);
  const auto last = std::ranges::upper_bound(first, end, wanted, {}, byte_of);
  return {static_cast<std::size_t>(first - entries_.begin()),
          static_cast<std::size_t>(last - entries_.begin())};
}

}  // namespace spillway
