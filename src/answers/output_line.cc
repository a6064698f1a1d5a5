#include "src/answers/output_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "src/answers/reasoning.h"
#include "src/base/json_text.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

using nlohmann::json;

std::string Quoted(std::string_view text) { return JsonText(json(text)); }

// JSON has no -inf; OpenAI's floor stands for "never".
float Printed(float logprob) { return std::isfinite(logprob) ? logprob : -9999.0F; }

void AppendLogprob(float logprob, std::string& out) {
  fmt::format_to(std::back_inserter(out), "{}", Printed(logprob));
}

std::string NameOf(int64_t line, const std::string& custom_id) {
  return Quoted(custom_id.empty() ? std::to_string(line) : custom_id);
}

// The token as OpenAI's completions print it: its text with the leading space; "bytes:\xe2\x80" for
// a token that holds a part of a character; for one without text (special tokens) the vocabulary's
// spelling.
std::string TokenName(TokenId token, const Tokenizer& tokenizer) {
  std::string bytes;
  tokenizer.AppendBytes(token, /*first=*/false, bytes);
  if (bytes.empty()) return tokenizer.TokenText(token);
  if (IsValidUtf8(bytes)) return bytes;
  std::string name = "bytes:";
  for (const char byte : bytes)
    fmt::format_to(std::back_inserter(name), "\\x{:02x}", static_cast<unsigned char>(byte));
  return name;
}

template <typename Items, typename Append>
void AppendList(const Items& items, std::string& out, Append append) {
  out += '[';
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += ',';
    first = false;
    append(item);
  }
  out += ']';
}

// The N best and, when it is none of them, the chosen token: up to N + 1, as OpenAI documents.
// Several ids may have one text; an object has each key once, and the likeliest comes first and
// stays.
void AppendTop(const StepLogprobs& step, TokenId chosen, const Tokenizer& tokenizer,
               std::string& out) {
  std::vector<std::string> names;
  out += '{';
  const auto add = [&](TokenId token, float logprob) {
    std::string name = TokenName(token, tokenizer);
    if (std::ranges::find(names, name) != names.end()) return;
    if (!names.empty()) out += ',';
    out += Quoted(name) + ':';
    AppendLogprob(logprob, out);
    names.push_back(std::move(name));
  };
  for (const TokenLogprob& entry : step.top) add(entry.token, entry.logprob);
  add(chosen, step.chosen);
  out += '}';
}

void AppendLogprobs(const Completion& completion, const Tokenizer& tokenizer, std::string& out) {
  out += R"({"tokens":)";
  AppendList(completion.tokens, out,
             [&](TokenId token) { out += Quoted(TokenName(token, tokenizer)); });
  out += R"(,"token_logprobs":)";
  AppendList(completion.logprobs, out,
             [&](const StepLogprobs& step) { AppendLogprob(step.chosen, out); });
  out += R"(,"top_logprobs":)";
  std::size_t place = 0;
  AppendList(completion.logprobs, out, [&](const StepLogprobs& step) {
    AppendTop(step, completion.tokens[place++], tokenizer, out);
  });
  out += '}';
}

// {"token":"...","logprob":-0.5,"bytes":[...] without the end: bytes are null for a token without
// text.
void AppendTokenLogprob(TokenId token, float logprob, const Tokenizer& tokenizer,
                        std::string& out) {
  std::string bytes;
  tokenizer.AppendBytes(token, /*first=*/false, bytes);
  out += R"({"token":)" + Quoted(TokenName(token, tokenizer)) + R"(,"logprob":)";
  AppendLogprob(logprob, out);
  out += R"(,"bytes":)";
  if (bytes.empty()) {
    out += "null";
    return;
  }
  AppendList(bytes, out, [&](char byte) {
    fmt::format_to(std::back_inserter(out), "{}", static_cast<unsigned char>(byte));
  });
}

// Chat form: {"content":[{"token","logprob","bytes","top_logprobs":[...]}]}.
void AppendChatLogprobs(const Completion& completion, const Tokenizer& tokenizer,
                        std::string& out) {
  out += R"({"content":)";
  std::size_t place = 0;
  AppendList(completion.logprobs, out, [&](const StepLogprobs& step) {
    AppendTokenLogprob(completion.tokens[place++], step.chosen, tokenizer, out);
    out += R"(,"top_logprobs":)";
    AppendList(step.top, out, [&](const TokenLogprob& entry) {
      AppendTokenLogprob(entry.token, entry.logprob, tokenizer, out);
      out += '}';
    });
    out += '}';
  });
  out += R"(,"refusal":null})";
}

// "created" is no time, so that the same run gives the same bytes.
std::string BodyHead(const Request& request, const WriterOptions& options) {
  const bool is_chat = request.body == AnswerBody::kMessage;
  return fmt::format(R"("id":"{}-{:016x}_{}","object":"{}","created":0)",
                     is_chat ? "chatcmpl" : "cmpl", options.run_fingerprint, request.line,
                     is_chat ? "chat.completion" : "text_completion");
}

// "message":{...}, the reasoning apart where that is asked for.
std::string MessageOf(const Request& request, const Completion& completion,
                      const WriterOptions& options) {
  SplitText parts = {completion.text, std::nullopt};
  if (options.splits_reasoning) parts = SplitReasoning(completion.text, request.opens_reasoning);
  const std::string reasoning =
      parts.reasoning ? fmt::format(R"(,"reasoning_content":{})", Quoted(*parts.reasoning)) : "";
  return fmt::format(R"("message":{{"role":"assistant","content":{}{},"refusal":null}})",
                     Quoted(parts.content), reasoning);
}

// {"id":"...","custom_id":"...","response":
std::string Head(int64_t line, const std::string& custom_id, uint64_t fingerprint) {
  return fmt::format(R"({{"id":"batch_req_{:016x}_{}","custom_id":{},"response":)", fingerprint,
                     line, NameOf(line, custom_id));
}

std::string ErrorObject(const LineError& error) {
  return fmt::format(R"({{"code":{},"message":{}}})", Quoted(error.code), Quoted(error.message));
}

// ,"choice":{"index":1,"logprob":-0.25}
void AppendChoice(const TakenChoice& choice, std::string& out) {
  fmt::format_to(std::back_inserter(out), R"(,"choice":{{"index":{},"logprob":)", choice.index);
  AppendLogprob(static_cast<float>(choice.logprob), out);
  out += '}';
}

}  // namespace

std::string CompletionLine(const Request& request, const Completion& completion,
                           const Tokenizer& tokenizer, const WriterOptions& options) {
  const bool is_chat = request.body == AnswerBody::kMessage;
  std::string out = Head(request.line, request.custom_id, options.run_fingerprint);
  fmt::format_to(std::back_inserter(out),
                 R"({{"status_code":200,"request_id":"req_{:016x}_{}","body":{{{},"model":{},)"
                 R"("choices":[{{"index":0,{},"token_ids":)",
                 options.run_fingerprint, request.line, BodyHead(request, options),
                 Quoted(options.model_name),
                 is_chat ? MessageOf(request, completion, options)
                         : fmt::format(R"("text":{})", Quoted(completion.text)));
  AppendList(completion.tokens, out,
             [&](TokenId token) { fmt::format_to(std::back_inserter(out), "{}", token); });
  const bool stopped = completion.finish_reason == FinishReason::kStop;
  if (completion.choice) AppendChoice(*completion.choice, out);
  fmt::format_to(std::back_inserter(out), R"(,"finish_reason":"{}","logprobs":)",
                 stopped ? "stop" : "length");
  if (request.sampling.num_logprobs < 0) {
    out += "null";
  } else if (is_chat) {
    AppendChatLogprobs(completion, tokenizer, out);
  } else {
    AppendLogprobs(completion, tokenizer, out);
  }
  const auto num_tokens = static_cast<int64_t>(completion.tokens.size());
  fmt::format_to(
      std::back_inserter(out),
      R"(}}],"usage":{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{}{}}}}}}},"error":null}})"
      "\n",
      completion.num_prompt_tokens, num_tokens, completion.num_prompt_tokens + num_tokens,
      request.num_cut > 0 ? fmt::format(R"(,"prompt_tokens_cut":{})", request.num_cut) : "");
  return out;
}

std::string ScoreLine(const Request& request, const Scores& scores) {
  const ScoreTotals totals = TotalsOf(scores);
  std::string out =
      fmt::format(R"({{"custom_id":{},"logprob_sum":{},"num_tokens":{},"token_logprobs":[)",
                  NameOf(request.line, request.custom_id), totals.logprob_sum, totals.num_tokens);
  const int64_t num_unscored = request.scored->num_unscored;
  for (int64_t entry = 0; entry < num_unscored; ++entry) out += entry == 0 ? "null" : ",null";
  bool first = num_unscored == 0;
  for (const float logprob : scores.logprobs) {
    if (!first) out += ',';
    first = false;
    AppendLogprob(logprob, out);
  }
  fmt::format_to(std::back_inserter(out), R"(],"greedy_match":{})", scores.greedy_match);
  if (request.num_cut > 0)
    fmt::format_to(std::back_inserter(out), R"(,"context_tokens_cut":{})", request.num_cut);
  return out + "}\n";
}

ScoreTotals TotalsOf(const Scores& scores) {
  ScoreTotals totals;
  totals.num_tokens = static_cast<int64_t>(scores.logprobs.size());
  for (const float logprob : scores.logprobs) totals.logprob_sum += Printed(logprob);
  return totals;
}

std::string ErrorOutputLine(const LineError& error, const WriterOptions& options) {
  if (options.form == AnswerForm::kScore) {
    return fmt::format("{{\"custom_id\":{},\"error\":{}}}\n", NameOf(error.line, error.custom_id),
                       ErrorObject(error));
  }
  return fmt::format("{}null,\"error\":{}}}\n",
                     Head(error.line, error.custom_id, options.run_fingerprint),
                     ErrorObject(error));
}

}  // namespace spillway
