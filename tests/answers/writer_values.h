// Values that the tests of the writer write, and how they see it fail.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/answers/writer.h"
#include "tests/requests/fake_tokenizer.h"

namespace spillway {

inline const FakeTokenizer& WriterTokens() {
  static const FakeTokenizer tokenizer({" the", "é", "é", "\xe2\x82"});
  return tokenizer;
}

inline WriterOptions TestWriterOptions(ExistingOutput existing = ExistingOutput::kRefuse) {
  return {"tales", 0xabcd, existing};
}

inline Request RequestOfLine(int64_t line) {
  Request request;
  request.line = line;
  request.custom_id = "id-" + std::to_string(line);
  return request;
}

inline Completion Answer(std::string text, std::vector<TokenId> tokens) {
  Completion completion;
  completion.text = std::move(text);
  completion.tokens = std::move(tokens);
  completion.num_prompt_tokens = 5;
  return completion;
}

inline LineError BadLine(int64_t line) {
  return {line, "", "invalid_json", "line " + std::to_string(line) + ": column 2: bad"};
}

inline ErrorCode CodeOf(const std::function<void()>& action, std::string* message = nullptr) {
  try {
    action();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.what();
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kInternal;
}

}  // namespace spillway
