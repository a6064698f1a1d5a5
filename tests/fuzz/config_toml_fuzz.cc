// A file of flags (--config).
#include <array>
#include <string>

#include "src/config/config.h"
#include "tests/fuzz/fuzz_case.h"

namespace spillway::fuzz {

void Take(std::string_view bytes) {
  static const Folder folder;
  const std::string file = folder.Write("flags.toml", bytes).string();
  const std::array words = {"spillway", "generate", "--config", file.c_str()};
  ParseConfig(static_cast<int>(words.size()), words.data());
}

}  // namespace spillway::fuzz
