// EarlierLine: what a line of an output says of itself, for who goes on after it.
// Plain functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/model.h"  // TokenId
#include "src/answers/answer_form.h"

namespace spillway {

struct EarlierLine {
  std::string custom_id;
  bool is_error = false;
  bool is_empty = false;        // a completion without a text
  std::string model;            // of a completion
  std::vector<TokenId> tokens;  // of a completion
  int64_t num_prompt_tokens = 0;
  ScoreTotals scores;  // of a score
};

// Throws: nlohmann::json::exception where `text` is no line of that form.
EarlierLine ParseEarlierLine(std::string_view text, AnswerForm form);

}  // namespace spillway
