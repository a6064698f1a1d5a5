#include "src/base/part_number.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

namespace spillway {

bool TakeDigits(std::string_view text, int64_t& value) {
  if (text.find_first_not_of("0123456789") != text.npos) return false;
  return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc();
}

std::string PartNumber(int64_t number, int64_t count) {
  return fmt::format("-{:05}-of-{:05}", number, count);
}

std::filesystem::path NumberedPart(const std::filesystem::path& whole, int64_t number,
                                   int64_t count) {
  std::string name = whole.stem().string() + PartNumber(number, count);
  name += whole.extension().string();
  return whole.parent_path() / name;
}

std::optional<NumberedName> PartNumberOf(const std::filesystem::path& part) {
  constexpr std::size_t kDigits = 5;
  constexpr std::string_view kOf = "-of-";
  constexpr std::size_t kSize = 1 + kDigits + kOf.size() + kDigits;
  const std::string stem = part.stem().string();
  if (stem.size() <= kSize) return std::nullopt;
  const std::string_view tail = std::string_view(stem).substr(stem.size() - kSize);
  NumberedName name;
  const bool fits = tail[0] == '-' && tail.substr(1 + kDigits, kOf.size()) == kOf &&
                    TakeDigits(tail.substr(1, kDigits), name.number) &&
                    TakeDigits(tail.substr(kSize - kDigits), name.count);
  return fits ? std::optional(name) : std::nullopt;
}

std::filesystem::path WholeOfPart(const std::filesystem::path& part, int64_t number,
                                  int64_t count) {
  std::string name = part.stem().string();
  name.resize(name.size() - PartNumber(number, count).size());
  name += part.extension().string();
  return part.parent_path() / name;
}

}  // namespace spillway
