// CustomIds: the custom_ids of a file's lines, to find one that is there twice. An id is kept as 8
// bytes of hash, and that of a line without one, its number, as a bit.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace spillway {

class CustomIds {
 public:
  // Adds the id of `line`; "" stands for its number. False: it may be there already: it is, unless
  // two hashes are equal by chance.
  // Requires: lines come in ascending order.
  bool Add(int64_t line, std::string_view id);

 private:
  bool AddNumber(int64_t line);
  bool HasNumber(int64_t line) const;
  std::size_t PlaceOf(uint64_t hash) const;
  bool Insert(uint64_t hash);
  void Grow();

  std::vector<bool> numbers_;     // [line]: its id is its number
  std::vector<uint64_t> hashes_;  // open addressing; 0 is empty; a power of two, at most 3/4 full
  int64_t num_hashes_ = 0;
  bool has_numerals_ = false;  // among the hashed ids
};

}  // namespace spillway
