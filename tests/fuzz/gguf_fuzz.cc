// A GGUF file: metadata, the tokenizer and settings made of them, and the tensors that it says are
// there.
#include <utility>
#include <vector>

#include "src/gguf/gguf_checkpoint.h"
#include "src/gguf/gguf_config.h"
#include "src/gguf/gguf_file.h"
#include "src/gguf/gguf_tokenizer.h"
#include "tests/fuzz/fuzz_case.h"
#include "tests/fuzz/open_file.h"

namespace spillway::fuzz {

void Take(std::string_view bytes) {
  std::vector<GgufFile> files;
  files.push_back(ReadGguf(FileOf(bytes, "model.gguf")));
  GgufConfig(files);
  GgufGeneration(files.front().metadata);
  if (HasGgufTokenizer(files.front().metadata)) {
    GgufTokenizerJson(files.front().metadata);
    GgufTokenizerSettings(files.front().metadata);
  }
  ReadEnds(*MakeGgufCheckpoint(std::move(files)));
}

}  // namespace spillway::fuzz
