#include "src/requests/custom_ids.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

namespace spillway {
namespace {

constexpr std::size_t kFirstPlaces = 1024;

// Never 0, which marks an empty place.
uint64_t HashOf(std::string_view id) {
  return std::max<uint64_t>(1, XXH3_64bits(id.data(), id.size()));
}

// The line whose number is written like this.
std::optional<int64_t> LineOf(std::string_view id) {
  int64_t line = 0;
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), line);
  const bool all = error == std::errc() && end == id.data() + id.size();
  return all && line > 0 && id.front() != '0' ? std::optional(line) : std::nullopt;
}

}  // namespace

bool CustomIds::Add(int64_t line, std::string_view id) {
  if (id.empty()) return AddNumber(line);
  const std::optional<int64_t> of_line = LineOf(id);
  if (of_line == line) return AddNumber(line);
  if (of_line && HasNumber(*of_line)) return false;
  has_numerals_ |= of_line.has_value();
  return Insert(HashOf(id));
}

bool CustomIds::AddNumber(int64_t line) {
  const auto at = static_cast<std::size_t>(line);
  if (numbers_.size() <= at) numbers_.resize(std::max(at + 1, 2 * numbers_.size()));
  numbers_[at] = true;
  return !has_numerals_ || hashes_[PlaceOf(HashOf(std::to_string(line)))] == 0;
}

bool CustomIds::HasNumber(int64_t line) const {
  const auto at = static_cast<std::size_t>(line);
  return at < numbers_.size() && numbers_[at];
}

// The hash's place, or the empty one that it would take. Requires: hashes_ is not empty.
std::size_t CustomIds::PlaceOf(uint64_t hash) const {
  const std::size_t mask = hashes_.size() - 1;
  std::size_t place = hash & mask;
  while (hashes_[place] != 0 && hashes_[place] != hash) place = (place + 1) & mask;
  return place;
}

bool CustomIds::Insert(uint64_t hash) {
  if (4 * (num_hashes_ + 1) > 3 * std::ssize(hashes_)) Grow();
  uint64_t& place = hashes_[PlaceOf(hash)];
  if (place == hash) return false;
  place = hash;
  ++num_hashes_;
  return true;
}

void CustomIds::Grow() {
  std::vector<uint64_t> before(std::max(kFirstPlaces, 2 * hashes_.size()));
  before.swap(hashes_);
  for (const uint64_t hash : before)
    if (hash != 0) hashes_[PlaceOf(hash)] = hash;
}

}  // namespace spillway
