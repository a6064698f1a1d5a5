#include "src/config/work_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "spillway/error.h"
#include "src/config/flag_kinds.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

Flag ParseSpecialFlag() {
  return Switch("no-parse-special", "take special tokens written in the input as plain text",
                [](Config& config, bool on) {
                  config.special_text = on ? SpecialText::kPlain : SpecialText::kParse;
                });
}

Flag NoProfileFlag(std::string help) {
  return Switch("no-profile", std::move(help),
                [](Config& config, bool on) { config.makes_profile = !on; });
}

Flag StrictFlag() {
  return Switch("strict",
                "keys that are not known are errors of their lines, not warnings; generate and "
                "score begin only if all lines can run",
                &Config::strict);
}

Flag TruncateFlag() {
  return Value("truncate", "left|right|middle",
               "leave out this part of prompts that are too long (they are errors of their lines)",
               [](Config& config, const std::string& text) {
                 config.cut = CutSideNamed(text);
                 if (config.cut) return;
                 throw Error(
                     ErrorCode::kFlag,
                     fmt::format("--truncate {}: expected left, right or middle", Printable(text)));
               });
}

Flag DuplicatesFlag() {
  return Switch("allow-duplicate-ids", "run an input in which two lines have one custom_id",
                &Config::allow_duplicate_ids);
}

Flag NoResumeFlag(std::string help) {
  return Switch("no-resume", std::move(help), [](Config& config, bool on) { config.resume = !on; });
}

void AddStop(Config& config, const std::string& text) {
  if (text.empty())
    throw Error(ErrorCode::kFlag, "--stop: an empty stop string would end every row at once");
  if (config.sampling.stop.size() == 16)
    throw Error(ErrorCode::kFlag, "--stop: at most 16 stop strings");
  config.sampling.stop.push_back(text);
}

void AddChoice(Config& config, const std::string& text) {
  if (text.empty()) throw Error(ErrorCode::kFlag, "--choice: an empty choice would be no answer");
  if (!IsValidUtf8(text))
    throw Error(ErrorCode::kFlag, fmt::format("--choice {}: is not UTF-8", Printable(text, 60)));
  std::vector<std::string>& choices = config.sampling.choices;
  if (choices.size() == 1024) throw Error(ErrorCode::kFlag, "--choice: at most 1,024 choices");
  choices.push_back(text);
  std::size_t num_bytes = 0;
  for (const std::string& choice : choices) num_bytes += choice.size();
  if (num_bytes > 65536) throw Error(ErrorCode::kFlag, "--choice: at most 65,536 bytes in all");
}

// "2,128009"
void SetStopTokens(Config& config, const std::string& text) {
  constexpr std::size_t kMaxStopTokens = 256;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const int64_t id =
        ParseInteger("stop-token-ids", text.substr(begin, end - begin), 0, INT32_MAX);
    if (config.sampling.stop_token_ids.size() == kMaxStopTokens)
      throw Error(ErrorCode::kFlag, "--stop-token-ids: at most 256 token ids");
    config.sampling.stop_token_ids.push_back(static_cast<int32_t>(id));
    begin = end + 1;
  }
}

// Highest number of a share, without a percent sign and with one.
struct MostOf {
  double plain;
  double percent;
};

// "20%" or "0.2": 0.2
double ParseShare(std::string_view flag, std::string_view text, MostOf most) {
  if (!text.ends_with('%')) return ParseReal(flag, text, 0.0, most.plain);
  text.remove_suffix(1);
  return ParseReal(flag, text, 0.0, most.percent) / 100.0;
}

void SetShadow(Config& config, const std::string& text) {
  const double share = ParseShare("shadow", text, {1.0, 100.0});
  if (share == 0.0) throw Error(ErrorCode::kFlag, "--shadow: must be more than 0");
  if (share == 1.0 && !text.ends_with('%'))
    throw Error(ErrorCode::kFlag, "--shadow 1: say 1% or 100%");
  config.shadow_frac = share;
}

void SetMaxLoss(Config& config, const std::string& text) {
  config.max_loss_frac = ParseShare("max-loss", text, {1000.0, 1000.0});
}

void SetKvBytes(Config& config, const std::string& text) {
  const double share = ParseShare("kv-bytes", text, {1.0, 100.0});
  if (share == 0.0) throw Error(ErrorCode::kFlag, "--kv-bytes: must be more than 0");
  config.kv_bytes_frac = share;
}

void SetBudgetsPer(Config& config, const std::string& text) {
  if (text != "head" && text != "layer") {
    throw Error(ErrorCode::kFlag,
                fmt::format("--per: '{}' is not head or layer", Printable(text, 40)));
  }
  config.budgets_per = text == "head" ? BudgetsPer::kHead : BudgetsPer::kLayer;
}

}  // namespace

std::vector<Flag> InputFlags() {
  return {
      Value("input", "FILE", "prompts: JSONL, or one a line in a .txt file; - is standard input",
            &Config::input),
      ParseSpecialFlag(),
      TruncateFlag(),
      StrictFlag(),
      DuplicatesFlag(),
  };
}

std::vector<Flag> SyntheticFlags() {
  return {
      Integer("prompt-len", "tokens of each prompt, the start token included (512)",
              &Config::prompt_len, 1, kMaxTokens),
      Integer("prefix-len", "of them, those that all begin with, in whole steps of 64 (0)",
              &Config::prefix_len, 0, kMaxTokens),
      Integer("gen-len", "tokens to generate for each prompt (32)", &Config::gen_len, 1,
              kMaxTokens),
      Integer("num-requests", "prompts (one block of the given batches; 64 where none are given)",
              &Config::num_requests, 1, kMaxRequests),
  };
}

std::vector<Flag> SamplingFlags() {
  return {
      Integer("max-new-tokens", "tokens to generate for a request that does not say (64)",
              &Sampling::max_tokens, 1, kMaxTokens),
      Integer("min-new-tokens", "end of text and stop strings do not count before (0)",
              &Sampling::min_tokens, 0, kMaxTokens),
      Real("temperature", "0 is greedy (0)", &Sampling::temperature, 0.0, 100.0),
      Real("top-p", "draw from the smallest set of tokens with this probability mass (1: off)",
           &Sampling::top_p, 1e-9, 1.0),
      Integer("top-k", "draw from the N likeliest tokens (0: off)", &Sampling::top_k, 0,
              kMaxTokens),
      {"choice", FlagKind::kList, "STR",
       "the answer is one of these texts; may be given up to 1,024 times", AddChoice},
      {"stop", FlagKind::kList, "STR", "end before this text; may be given up to 16 times",
       AddStop},
      Value("stop-token-ids", "N,N...", "tokens that end a row, beside the model's end of text",
            SetStopTokens),
      Real("repetition-penalty", "divide logits of tokens that were there already (1: off)",
           &Sampling::repetition_penalty, 1e-9, 100.0),
      Switch("ignore-generation-config", "take no sampling settings from generation_config.json",
             &Config::ignore_generation_config),
      Switch("ignore-eos", "go on past the end-of-text token",
             [](Config& config, bool on) { config.sampling.ignore_eos = on; }),
      Integer("logprobs", "log-probabilities of the chosen token and the N likeliest",
              &Sampling::num_logprobs, 0, 20),
  };
}

std::vector<Flag> OutputFlags(std::string help) {
  return {
      Value("output", "FILE", std::move(help) + " in JSONL (default: - , standard output)",
            &Config::output),
      Switch("overwrite", "begin anew, over an output or an interrupted run", &Config::overwrite),
      Switch("resume",
             "start, go on where the interrupted run stopped, or find all done (the default); an "
             "output of another run is then exit 51",
             &Config::resume),
      NoResumeFlag("refuse an output that an interrupted or finished run has left"),
      NoProfileFlag("do not measure a machine of unknown rates before a long job"),
  };
}

Flag ShadowFlag() {
  return Value("shadow", "N%",
               "first run this share of the rows with the full KV cache of 16 bits too, 1,024 rows "
               "at most, and tell what the run's own KV costs",
               SetShadow);
}

Flag MaxLossFlag(std::string help) { return Value("max-loss", "N%", std::move(help), SetMaxLoss); }

std::vector<Flag> StopFlags() {
  return {
      Integer(
          "grace",
          "seconds after SIGTERM or SIGUSR1 in which the rows that run may end; new ones do not "
          "begin (0)",
          &Config::grace_s, 0, 86400),
      Integer("exit-interrupted", "exit status of an interrupted run, for the scheduler (75)",
              &Config::interrupted_status, 1, 255),
  };
}

std::vector<Flag> StreamFlags() {
  return {
      Switch("stream",
             "a worker for other programs: answer the lines of standard input as they come, on "
             "standard output",
             &Config::stream),
      Integer("pause-ms",
              "milliseconds without a new line after which the lines that came run (100)",
              &Config::pause_ms, 0, 86'400'000),
  };
}

std::vector<Flag> UnusedOutputFlags() {
  return {
      Value("output", "FILE", "taken as generate takes it; nothing is written there",
            &Config::output),
      Switch("overwrite", "taken as generate takes it; nothing is replaced", &Config::overwrite),
      Switch("resume", "taken as generate takes it; nothing is resumed", &Config::resume),
      NoResumeFlag("taken as generate takes it; nothing is refused"),
      NoProfileFlag("taken as generate takes it; nothing is measured"),
      Value("shadow", "N%", "taken as generate takes it; nothing is compared", SetShadow),
  };
}

std::vector<Flag> ScoreFlags() {
  return {
      Value("input", "FILE", "texts: JSONL, or one a line in a .txt file; - is standard input",
            &Config::input),
      Value("perplexity", "FILE", "perplexity of this text, in place of --input",
            &Config::perplexity),
      Integer("window", "tokens the model sees at a time (2048, or all its positions)",
              &Config::window, 2, kMaxTokens),
      Integer("stride", "tokens from one window to the next, scored once (512)", &Config::stride, 1,
              kMaxTokens),
      Switch(
          "start-each-window",
          "put the start token in place of each window's first token; for models that lean on it",
          &Config::start_each_window),
      Integer("prefill",
              "known tokens of the first pass; the others follow one a pass (all; with h2o and "
              "window what precedes the first scored token)",
              &Config::prefill, 1, kMaxTokens),
      ParseSpecialFlag(),
      StrictFlag(),
      DuplicatesFlag(),
  };
}

std::vector<Flag> CalibrateFlags() {
  return {
      Value("text", "FILE", "text that the model is measured on", &Config::perplexity),
      Value("input", "FILE", "prompts of a job, JSONL or .txt, in place of a text", &Config::input),
      MaxLossFlag("how much perplexity may rise (1%)"),
      Value("kv-bytes", "N%",
            "in place of a loss: the KV's bytes, of those of a full cache of 16 bits", SetKvBytes),
      Switch(
          "pareto",
          "measure KV of 16, 8, 8,4 and 4 bits at several sizes; the report has all of them, for "
          "search --calibration",
          &Config::pareto),
      Value("per", "head|layer",
            "budgets of each KV head, or of each layer (head; layer where not h2o)", SetBudgetsPer),
      Value("output", "FILE", "write the budgets here, a policy file, over an earlier one",
            &Config::output),
      Integer("window", "tokens of a sample (640)", &Config::window, 2, kMaxTokens),
      Integer(
          "prefill",
          "of them the prompt; the others are scored (a quarter and 7/8; with --per layer half)",
          &Config::prefill, 1, kMaxTokens),
      Integer("sample", "windows spread over the text (32; with --per layer 16)", &Config::sample,
              1, kMaxRows),
      ParseSpecialFlag(),
  };
}

}  // namespace spillway
