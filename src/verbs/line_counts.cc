#include "src/verbs/line_counts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "spillway/error.h"
#include "src/base/stop_signal.h"
#include "src/requests/input_form.h"
#include "src/requests/line_json.h"
#include "src/requests/line_source.h"
#include "src/unicode/utf8.h"
#include "src/verbs/inspect_row.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr int64_t kLinesPerStopCheck = 256;

LinesKind KindOf(const json& line) {
  if (!line.is_object()) return LinesKind::kOther;
  const auto has = [&](const char* key) { return line.contains(key); };
  if (has("response") && has("error")) return LinesKind::kAnswers;
  if (has("custom_id") && has("logprob_sum")) return LinesKind::kScores;
  for (const char* key :
       {"prompt", "messages", "token_ids", "text", "context", "context_token_ids", "body"})
    if (has(key)) return LinesKind::kRequests;
  if (has("custom_id") && has("num_tokens")) return LinesKind::kTokenCounts;
  if (has("custom_id") && has("error")) return LinesKind::kErrors;
  return LinesKind::kOther;
}

int64_t NumCharacters(std::string_view text) {
  return std::ranges::count_if(text, [](char byte) { return (byte & 0xC0) != 0x80; });
}

// All strings in a value: a text, or the contents of messages.
int64_t CharactersIn(const json& value) {
  if (value.is_string()) return NumCharacters(value.get_ref<const std::string&>());
  int64_t sum = 0;
  if (value.is_array())
    for (const json& item : value) sum += CharactersIn(item);
  if (value.is_object())
    for (const char* key : {"content", "text"})
      if (const auto found = value.find(key); found != value.end()) sum += CharactersIn(*found);
  return sum;
}

bool IsIds(const json& value) {
  return value.is_array() && !value.empty() && value.front().is_number();
}

void AddError(const std::string& code, int64_t line, LineCounts& counts) {
  LineCounts::Error& error = counts.errors[Printable(code, 60)];
  if (error.num_lines++ == 0) error.first_line = line;
}

void AddPrompt(const json& prompt, LineCounts& counts) {
  if (IsIds(prompt)) return counts.given_ids.Add(std::ssize(prompt));
  counts.characters.Add(CharactersIn(prompt));
}

void AddRequest(const json& line, int64_t number, LineCounts& counts) {
  static const json absent;
  const json& body = line.contains("body") ? line["body"] : line;
  const auto at = [&](const char* key) -> const json& {
    return body.is_object() && body.contains(key) ? body[key] : absent;
  };
  if (!at("messages").is_null()) {
    ++counts.num_chats;
    return AddPrompt(at("messages"), counts);
  }
  for (const char* key : {"prompt", "token_ids"}) {
    if (at(key).is_null()) continue;
    ++counts.num_prompts;
    return AddPrompt(at(key), counts);
  }
  if (const json& ids = at("context_token_ids"); !ids.is_null()) {
    ++counts.num_texts;
    return counts.given_ids.Add(
        static_cast<int64_t>(ids.size() + at("continuation_token_ids").size()));
  }
  const json& text = at("text");
  const json& context = at("context");
  if (text.is_null() && context.is_null()) return AddError("no_prompt", number, counts);
  ++counts.num_texts;
  counts.characters.Add(CharactersIn(text) + CharactersIn(context) +
                        CharactersIn(at("continuation")));
}

void AddChoice(const std::string& text, const json& taken, LineCounts& counts) {
  const auto logprob = taken.at("logprob").get<double>();
  if (counts.choices.size() >= LineCounts::kMostChoices && !counts.choices.contains(text)) {
    ++counts.num_other_choices;
    return;
  }
  LineCounts::Choice& choice = counts.choices[text];
  ++choice.num_lines;
  choice.logprob_sum += logprob;
}

void AddCompletion(const json& line, LineCounts& counts) {
  const json& body = line.at("response").at("body");
  const json& choice = body.at("choices").at(0);
  const json& text =
      choice.contains("message") ? choice["message"].at("content") : choice.at("text");
  counts.num_empty += text.get_ref<const std::string&>().empty() ? 1 : 0;
  if (const auto taken = choice.find("choice"); taken != choice.end())
    AddChoice(text.get<std::string>(), *taken, counts);
  ++counts.finish_reasons[Printable(choice.at("finish_reason").get<std::string>(), 20)];
  counts.prompt_tokens.Add(body.at("usage").at("prompt_tokens").get<int64_t>());
  counts.new_tokens.Add(body.at("usage").at("completion_tokens").get<int64_t>());
}

void AddAnswer(const json& line, int64_t number, LineCounts& counts) {
  if (const auto error = line.find("error"); error != line.end() && !error->is_null())
    return AddError(error->at("code").get<std::string>(), number, counts);
  if (counts.kind == LinesKind::kAnswers) {
    AddCompletion(line, counts);
  } else if (counts.kind == LinesKind::kTokenCounts) {
    counts.prompt_tokens.Add(line.at("num_tokens").get<int64_t>());
  } else {
    const auto logprob_sum = line.at("logprob_sum").get<double>();
    counts.new_tokens.Add(line.at("num_tokens").get<int64_t>());
    counts.logprob_sum += logprob_sum;
  }
  ++counts.num_answers;
}

// Counts a line; false, and an error: it is no text.
bool TakeText(const Line& line, LineCounts& counts) {
  ++counts.num_lines;
  if (!line.too_long && IsValidUtf8(line.text)) return true;
  AddError(line.too_long ? "line_too_long" : "invalid_utf8", line.number, counts);
  return false;
}

// A prompt in a file of plain lines.
void AddText(const Line& line, LineCounts& counts) {
  if (!TakeText(line, counts)) return;
  ++counts.num_prompts;
  counts.characters.Add(NumCharacters(line.text));
}

void AddLine(const Line& line, LineCounts& counts) {
  if (!TakeText(line, counts)) return;
  const std::variant<json, LineFault> parsed = ParseLineJson(line.text);
  if (const auto* fault = std::get_if<LineFault>(&parsed))
    return AddError(fault->code, line.number, counts);
  const json& value = std::get<json>(parsed);
  if (counts.kind == LinesKind::kOther || counts.kind == LinesKind::kErrors) {
    const LinesKind kind = KindOf(value);
    if (kind != LinesKind::kOther) counts.kind = kind;
  }
  if (!value.is_object()) return AddError("invalid_json", line.number, counts);
  if (counts.kind == LinesKind::kRequests) return AddRequest(value, line.number, counts);
  try {
    AddAnswer(value, line.number, counts);
  } catch (const json::exception&) {
    AddError("(no line of an output)", line.number, counts);
  }
}

std::string LengthText(const LengthCount& length, std::string_view unit) {
  return fmt::format("{} {}, the longest {}", length.sum, unit, length.longest);
}

std::string RequestsText(const LineCounts& counts) {
  std::string text = InspectRow(
      "requests", fmt::format("{} lines: {} prompts, {} chats, {} texts to score", counts.num_lines,
                              counts.num_prompts, counts.num_chats, counts.num_texts));
  if (counts.characters.sum > 0)
    text +=
        InspectRow("characters", LengthText(counts.characters, "in all") +
                                     " (English has about 4 a token; plan --input counts tokens)");
  if (counts.given_ids.sum > 0)
    text += InspectRow("token ids", LengthText(counts.given_ids, "in all"));
  return text;
}

std::string TokenCountsText(const LineCounts& counts) {
  return InspectRow("tokens", fmt::format("{} lines: {} prompts, {} errors; {}", counts.num_lines,
                                          counts.num_answers, counts.num_lines - counts.num_answers,
                                          LengthText(counts.prompt_tokens, "in all")));
}

// The most frequent ones, a line each.
std::string ChoicesText(const LineCounts& counts) {
  constexpr std::size_t kMostLines = 20;
  std::vector<std::pair<std::string, LineCounts::Choice>> choices(counts.choices.begin(),
                                                                  counts.choices.end());
  std::ranges::stable_sort(choices, std::greater(),
                           [](const auto& choice) { return choice.second.num_lines; });
  int64_t others = counts.num_other_choices;
  std::string text;
  for (std::size_t at = 0; at < choices.size(); ++at) {
    const auto& [name, choice] = choices[at];
    if (at >= kMostLines) {
      others += choice.num_lines;
      continue;
    }
    const auto num = static_cast<double>(choice.num_lines);
    text += InspectRow(
        at == 0 ? "choices" : "",
        fmt::format("{:>7}  {:>5.1f} %  \"{}\", mean log-probability {:.2f}", choice.num_lines,
                    100.0 * num / static_cast<double>(counts.num_answers), Printable(name, 60),
                    choice.logprob_sum / num));
  }
  if (others > 0) text += InspectRow("", fmt::format("{:>7}  others", others));
  return text;
}

std::string AnswersText(const LineCounts& counts) {
  std::vector<std::string> reasons;
  for (const auto& [reason, num] : counts.finish_reasons)
    reasons.push_back(fmt::format("{} {}", reason, num));
  const bool scores = counts.kind == LinesKind::kScores;
  // Errors alone may be of scores or of token counts, and no line of anything.
  const bool untold = counts.kind == LinesKind::kOther || counts.kind == LinesKind::kErrors;
  const std::string answers =
      untold ? "" : fmt::format("{} {}, ", counts.num_answers, scores ? "scores" : "completions");
  std::string text =
      InspectRow("output", fmt::format("{} lines: {}{} errors", counts.num_lines, answers,
                                       counts.num_lines - counts.num_answers));
  if (counts.num_empty > 0)
    text += InspectRow("empty", fmt::format("{} completions have no text", counts.num_empty));
  if (counts.prompt_tokens.sum > 0)
    text += InspectRow("prompts", LengthText(counts.prompt_tokens, "tokens"));
  if (counts.new_tokens.sum > 0)
    text += InspectRow(scores ? "scored" : "new", LengthText(counts.new_tokens, "tokens"));
  if (scores)
    text += InspectRow("sum", fmt::format("{:.6g} of log-probabilities", counts.logprob_sum));
  if (!reasons.empty()) text += InspectRow("ended by", fmt::format("{}", fmt::join(reasons, ", ")));
  return text + ChoicesText(counts);
}

}  // namespace

bool IsNamedAsLines(const std::filesystem::path& file) {
  const std::string extension = UnpackedExtension(file);
  return extension == ".jsonl" || extension == ".ndjson";
}

void LengthCount::Add(int64_t length) {
  sum += length;
  longest = std::max(longest, length);
}

std::string LineCounts::Text() const {
  std::string text = kind == LinesKind::kRequests      ? RequestsText(*this)
                     : kind == LinesKind::kTokenCounts ? TokenCountsText(*this)
                                                       : AnswersText(*this);
  for (const auto& [code, error] : errors) {
    text += InspectRow("error", error.num_lines == 1
                                    ? fmt::format("{}: line {}", code, error.first_line)
                                    : fmt::format("{}: {} lines, the first is line {}", code,
                                                  error.num_lines, error.first_line));
  }
  return text;
}

LineCounts CountLines(const std::filesystem::path& file, int64_t max_line_bytes) {
  LineSource lines(file, file.string(), max_line_bytes);
  LineCounts counts;
  const bool plain = FormOf(file) == InputForm::kPlainLines;
  if (plain) counts.kind = LinesKind::kRequests;
  const bool is_named = IsNamedAsLines(file);
  if (plain || is_named) RefuseOtherForm(lines.Head(), FormOf(file), file.string());
  while (const std::optional<Line> line = lines.Next()) {
    if (line->number % kLinesPerStopCheck == 0) ThrowIfStopRequested();
    if (line->blank) continue;
    if (plain) {
      AddText(*line, counts);
      continue;
    }
    if (counts.num_lines == 0 && is_named) {
      AddLine(*line, counts);
      if (counts.kind == LinesKind::kOther) counts.kind = LinesKind::kRequests;
      continue;
    }
    AddLine(*line, counts);
    if (counts.kind == LinesKind::kOther) return counts;
  }
  counts.num_blank = lines.num_blank_lines();
  return counts;
}

}  // namespace spillway
