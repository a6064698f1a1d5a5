#include "src/answers/earlier_line.h"

#include <nlohmann/json.hpp>

namespace spillway {
namespace {

using nlohmann::json;

// All of a choice's text.
std::string TextOf(const json& choice) {
  if (!choice.contains("message")) return choice.at("text");
  const json& message = choice.at("message");
  return message.value("reasoning_content", "") + message.at("content").get<std::string>();
}

void ParseScore(const json& line, EarlierLine& found) {
  found.is_error = line.contains("error");
  if (found.is_error) return;
  found.scores = {line.at("num_tokens").get<int64_t>(), line.at("logprob_sum").get<double>()};
}

void ParseCompletion(const json& line, EarlierLine& found) {
  found.is_error = !line.at("error").is_null();
  if (found.is_error) return;
  const json& body = line.at("response").at("body");
  const json& choice = body.at("choices").at(0);
  found.is_empty = TextOf(choice).empty();
  found.num_prompt_tokens = body.at("usage").at("prompt_tokens").get<int64_t>();
  found.model = body.at("model").get<std::string>();
  found.tokens = choice.at("token_ids").get<std::vector<TokenId>>();
}

}  // namespace

EarlierLine ParseEarlierLine(std::string_view text, AnswerForm form) {
  const json line = json::parse(text);
  EarlierLine found;
  found.custom_id = line.at("custom_id").get<std::string>();
  (form == AnswerForm::kScore ? ParseScore : ParseCompletion)(line, found);
  return found;
}

}  // namespace spillway
