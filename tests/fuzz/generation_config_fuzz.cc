// generation_config.json.
#include "src/checkpoint/generation_config.h"
#include "tests/fuzz/fuzz_case.h"

namespace spillway::fuzz {

void Take(std::string_view bytes) {
  static const Folder folder;
  folder.Write("generation_config.json", bytes);
  ReadGenerationConfig(ReadGenerationDocument(folder.path()));
}

}  // namespace spillway::fuzz
