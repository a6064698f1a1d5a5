// ReaderOptions for a FakeTokenizer.
#pragma once

#include <cstdint>

#include "src/requests/request_parser.h"
#include "tests/requests/fake_tokenizer.h"

namespace spillway {

inline ReaderOptions OptionsFor(int64_t max_positions, int64_t vocab_rows = 300) {
  ReaderOptions options;
  options.max_positions = max_positions;
  options.vocab_rows = vocab_rows;
  options.start_token = FakeTokenizer::kStart;
  return options;
}

}  // namespace spillway
