#include "src/requests/passed_keys.h"

#include <algorithm>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr std::size_t kMaxKeys = 32;
constexpr std::size_t kMaxKeyBytes = 60;

}  // namespace

PassedKey& PassedKeys::Find(std::string_view key) {
  const auto is_key = [&](const PassedKey& known) { return known.key == key; };
  if (auto found = std::ranges::find_if(keys_, is_key); found != keys_.end()) return *found;
  if (keys_.size() < kMaxKeys) return keys_.emplace_back(PassedKey{std::string(key)});
  if (!keys_.back().key.empty()) keys_.emplace_back();
  return keys_.back();
}

void PassedKeys::Add(int64_t line, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    // An empty key is told from the sum of many by how it is printed.
    PassedKey& passed = Find(key.empty() ? "\"\"" : Printable(key, kMaxKeyBytes));
    if (passed.num_lines++ == 0) passed.first_line = line;
  }
}

}  // namespace spillway
