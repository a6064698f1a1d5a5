// A set of characters as a pattern's [...] or \p{...} names it. Thread rule: immutable once
// finished; const methods from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "src/unicode/char_class.h"  // CategorySet

namespace spillway {

class CharSet {
 public:
  void AddRange(char32_t first, char32_t last) { ranges_.push_back({first, last}); }
  void AddCategories(CategorySet categories) { categories_ |= categories; }
  void AddSpace() { space_ = true; }
  void AddOtherThanSpace() { other_than_space_ = true; }
  void Add(const CharSet& other);
  void Negate() { negated_ = true; }

  // Prepares Contains: a table of the first plane where a set is more than a few characters.
  void Finish();

  bool Contains(char32_t c) const {
    if (c < bits_.size() * 64) return (bits_[c / 64] >> c % 64 & 1) != 0;
    return Evaluate(c);
  }

 private:
  struct Range {
    char32_t first;
    char32_t last;
  };

  bool Evaluate(char32_t c) const;
  std::vector<uint64_t> FirstPlane() const;

  std::vector<Range> ranges_;
  CategorySet categories_ = 0;
  bool space_ = false;
  bool other_than_space_ = false;
  bool negated_ = false;
  std::vector<CharSet> others_;  // finished sets that are part of it
  std::vector<uint64_t> bits_;
};

}  // namespace spillway
