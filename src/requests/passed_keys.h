// PassedKeys: keys of lines that nothing knows and that are passed over, counted for one warning
// each.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

struct PassedKey {
  std::string key;  // printable and short
  int64_t num_lines = 0;
  int64_t first_line = 0;
};

class PassedKeys {
 public:
  // Adds what one line has. Lines come in ascending order.
  void Add(int64_t line, const std::vector<std::string>& keys);

  // Keys in the order of their first lines. Those past the first 32 count together under an empty
  // key, each time that one comes: a file may have a new one on every line.
  const std::vector<PassedKey>& keys() const { return keys_; }

 private:
  PassedKey& Find(std::string_view key);

  std::vector<PassedKey> keys_;
};

}  // namespace spillway
