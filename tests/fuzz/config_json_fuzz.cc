// config.json -> a model's layers.
#include "spillway/model.h"
#include "src/checkpoint/model_config.h"
#include "tests/fuzz/fuzz_case.h"

namespace spillway::fuzz {

void Take(std::string_view bytes) {
  static const Folder folder;
  folder.Write("config.json", bytes);
  MakeModel(ReadModelShape(folder.path()));
}

}  // namespace spillway::fuzz
