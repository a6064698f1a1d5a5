#include "src/base/part_number.h"

#include <fmt/format.h>

namespace spillway {

std::string PartNumber(int64_t number, int64_t count) {
  return fmt::format("-{:05}-of-{:05}", number, count);
}

std::filesystem::path NumberedPart(const std::filesystem::path& whole, int64_t number,
                                   int64_t count) {
  std::string name = whole.stem().string() + PartNumber(number, count);
  name += whole.extension().string();
  return whole.parent_path() / name;
}

std::filesystem::path WholeOfPart(const std::filesystem::path& part, int64_t number,
                                  int64_t count) {
  std::string name = part.stem().string();
  name.resize(name.size() - PartNumber(number, count).size());
  name += part.extension().string();
  return part.parent_path() / name;
}

}  // namespace spillway
