#include "src/config/flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/storage_choice.h"  // kStoredBits
#include "spillway/error.h"
#include "src/config/parse_value.h"
#include "src/formats/machine_file.h"
#include "src/formats/policy_file.h"

namespace spillway {
namespace {

using Setter = std::function<void(Config&, const std::string&)>;

constexpr int64_t kMaxThreads = 1024;
constexpr int64_t kMaxRows = 1 << 20;
constexpr int64_t kMaxTokens = 1 << 24;
constexpr int64_t kMaxRequests = 1 << 30;

Flag Value(std::string name, std::string placeholder, std::string help, Setter set) {
  return {std::move(name), FlagKind::kValue, std::move(placeholder), std::move(help),
          std::move(set)};
}

Flag Switch(std::string name, std::string help, void (*set)(Config&, bool)) {
  Setter setter = [name, set](Config& config, const std::string& text) {
    set(config, ParseBool(name, text));
  };
  return {std::move(name), FlagKind::kSwitch, "", std::move(help), std::move(setter)};
}

// An integer that lands in a member of Config.
template <typename T>
Flag Integer(std::string name, std::string help, T Config::*member, int64_t min, int64_t max) {
  Setter setter = [name, member, min, max](Config& config, const std::string& text) {
    const int64_t value = ParseInteger(name, text, min, max);
    if constexpr (std::is_integral_v<T>) {
      config.*member = static_cast<T>(value);
    } else {
      config.*member = value;
    }
  };
  return {std::move(name), FlagKind::kValue, "N", std::move(help), std::move(setter)};
}

Flag Bytes(std::string name, std::string help, std::optional<int64_t> Config::*member) {
  Setter setter = [name, member](Config& config, const std::string& text) {
    config.*member = ParseBytes(name, text);
  };
  return {std::move(name), FlagKind::kValue, "SIZE", std::move(help), std::move(setter)};
}

void SetDevice(Config& config, const std::string& text) {
  if (text == "auto" || text == "cpu") {
    config.device.kind = text == "cpu" ? DeviceKind::kCpu : DeviceKind::kAuto;
    return;
  }
  constexpr std::string_view kCuda = "cuda:";
#if defined(SPILLWAY_CUDA)
  if (text.starts_with(kCuda)) {
    constexpr int64_t kMaxIndex = 1023;
    const std::string index = text.substr(kCuda.size());
    config.device = {DeviceKind::kCuda,
                     static_cast<int>(ParseInteger("device", index, 0, kMaxIndex))};
    return;
  }
#else
  if (text.starts_with(kCuda.substr(0, kCuda.size() - 1))) {
    throw Error(ErrorCode::kFlag,
                fmt::format("--device {}: this build has no CUDA executor; use --device cpu",
                            Printable(text)));
  }
#endif
  throw Error(ErrorCode::kFlag,
              fmt::format("--device {}: expected auto, cpu or cuda:N", Printable(text)));
}

// FlexGen's six: weights, KV and activations on gpu and on cpu; the rest of each is on disk.
void SetPercent(Config& config, const std::string& text) {
  std::array<double, 6> percent{};
  std::size_t count = 0;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (word.empty()) continue;
    if (count == percent.size()) ++count;
    if (count > percent.size()) break;
    percent[count++] = ParseReal("percent", word, 0.0, 100.0);
  }
  if (count != percent.size()) {
    throw Error(
        ErrorCode::kFlag,
        fmt::format("--percent {}: expected six numbers, Wg Wc Kg Kc Ag Ac", Printable(text)));
  }
  for (std::size_t pair = 0; pair < percent.size(); pair += 2) {
    if (percent[pair] + percent[pair + 1] <= 100.0) continue;
    throw Error(ErrorCode::kFlag, fmt::format("--percent {}: {} + {} is more than 100",
                                              Printable(text), percent[pair], percent[pair + 1]));
  }
  config.percent = percent;
}

void SetKvDType(Config& config, const std::string& text) {
  if (text != "fp16" && text != "bf16") {
    throw Error(ErrorCode::kFlag,
                fmt::format("--kv-dtype {}: expected fp16 or bf16", Printable(text)));
  }
  config.kv_dtype = text == "fp16" ? DType::kF16 : DType::kBF16;
}

int ParseBits(std::string_view flag, const std::string& text) {
  for (const int bits : kStoredBits) {
    if (text == std::to_string(bits)) return bits;
  }
  throw Error(ErrorCode::kFlag, fmt::format("--{} {}: expected 16, 8 or 4", flag, Printable(text)));
}

Flag Bits(std::string name, std::string help, std::optional<int> Config::*member) {
  Setter setter = [name, member](Config& config, const std::string& text) {
    config.*member = ParseBits(name, text);
  };
  return {std::move(name), FlagKind::kValue, "16|8|4", std::move(help), std::move(setter)};
}

void SetKvPolicy(Config& config, const std::string& text) {
  for (const KvPolicyKind kind : {KvPolicyKind::kFull, KvPolicyKind::kH2o, KvPolicyKind::kWindow,
                                  KvPolicyKind::kH2oFlexgen}) {
    if (KvPolicyName(kind) != text) continue;
    config.kv_policy = kind;
    return;
  }
  throw Error(
      ErrorCode::kFlag,
      fmt::format("--kv-policy {}: expected full, h2o, window or h2o-flexgen", Printable(text)));
}

[[noreturn]] void RefusePercent(std::string_view flag, const std::string& text) {
  throw Error(ErrorCode::kFlag, fmt::format("--{} {}: expected a number of tokens, or a share from "
                                            "over 0% to 100%",
                                            flag, Printable(text)));
}

double ParsePercent(std::string_view flag, const std::string& text) {
  constexpr double kMaxPercent = 1e6;
  try {
    return ParseReal(flag, text.substr(0, text.size() - 1), 0.0, kMaxPercent);
  } catch (const Error&) {
    RefusePercent(flag, text);
  }
}

// "20%" of prompt + max new tokens, or a number of tokens.
TokenAmount ParseAmount(std::string_view flag, const std::string& text, int64_t min_tokens) {
  if (!text.ends_with('%')) return {0.0, ParseInteger(flag, text, min_tokens, kMaxTokens)};
  const double percent = ParsePercent(flag, text);
  if (percent > 100.0 || (percent == 0.0 && min_tokens > 0)) RefusePercent(flag, text);
  return {percent / 100.0, 0};
}

Flag Amount(std::string name, std::string help, std::optional<TokenAmount> Config::*member,
            int64_t min_tokens) {
  Setter setter = [name, member, min_tokens](Config& config, const std::string& text) {
    config.*member = ParseAmount(name, text, min_tokens);
  };
  return {std::move(name), FlagKind::kValue, "N|N%", std::move(help), std::move(setter)};
}

std::vector<Flag> KvFlags() {
  return {
      Value("kv-policy", "full|h2o|window|h2o-flexgen", "which tokens stay in the KV cache (full)",
            SetKvPolicy),
      Amount("kv-budget",
             "tokens kept per row, layer and KV head: a number, or a share of prompt + max new "
             "tokens; half heavy hitters, half recent (20%)",
             &Config::kv_budget, 1),
      Amount("kv-heavy", "heavy hitters kept, set apart from --kv-budget", &Config::kv_heavy, 0),
      Amount("kv-recent", "recent tokens kept, set apart from --kv-budget", &Config::kv_recent, 1),
      Integer("kv-sinks", "first tokens that a window keeps (0)", &Config::kv_sinks, 0, kMaxTokens),
      Value("kv-dtype", "fp16|bf16", "how K and V are stored (fp16, for bf16 models too)",
            SetKvDType),
      Bits("kv-bits",
           "bits of an element of K and V; below 16 in groups of 64, with a min and a scale (16)",
           &Config::kv_bits),
  };
}

void SetPolicy(Config& config, const std::string& text) {
  if (text != "auto") config.policy = ReadPolicy(text);
}

std::vector<Flag> ModelFlags() {
  return {
      Value("model", "PATH|NAME",
            "Hugging Face folder, store, or a built-in shape (opt-125m ... opt-175b) for dummy "
            "weights",
            [](Config& config, const std::string& text) { config.model = text; }),
      Switch("dummy-weights", "seeded random weights of the named shape; no checkpoint is read",
             [](Config& config, bool on) { config.dummy_weights = on; }),
      Bits("weight-bits",
           "how matrices are held: 8 and 4 in groups of 64 with a minimum and a step each (as the "
           "store is; 16 for other models)",
           &Config::weight_bits),
      Switch("allow-nonfinite-weights", "load weights that hold NaN or infinity",
             [](Config& config, bool on) { config.allow_nonfinite_weights = on; }),
  };
}

Flag ThreadsFlag() {
  return Integer("threads", "compute threads (default: physical cores)", &Config::num_threads, 1,
                 kMaxThreads);
}

Flag CpuComputeFlag() {
  return Value("cpu-compute", "fp32|bf16",
               "what products of 16-bit weights take on the CPU: fp32, or all rounded to bf16, "
               "faster and less exact (fp32)",
               [](Config& config, const std::string& text) {
                 if (text != "fp32" && text != "bf16")
                   throw Error(ErrorCode::kFlag, "--cpu-compute: give fp32 or bf16");
                 config.cpu_compute = text == "bf16" ? CpuCompute::kBf16 : CpuCompute::kFp32;
               });
}

Flag OffloadDirFlag() {
  return Value("offload-dir", "DIR", "folder of the disk tier and of temporary files ($TMPDIR)",
               [](Config& config, const std::string& text) { config.offload_dir = text; });
}

Flag SeedFlag(std::string help) {
  return Value("seed", "N", std::move(help), [](Config& config, const std::string& text) {
    config.seed = static_cast<uint64_t>(ParseInteger("seed", text, 0, INT64_MAX));
  });
}

Flag ParseSpecialFlag() {
  return Switch("no-parse-special", "take special tokens written in the input as plain text",
                [](Config& config, bool on) {
                  config.special_text = on ? SpecialText::kPlain : SpecialText::kParse;
                });
}

std::vector<Flag> TerminalFlags() {
  return {
      Switch("quiet", "print errors and warnings only",
             [](Config& config, bool on) {
               if (on) config.verbosity = Verbosity::kQuiet;
             }),
      Switch("verbose", "say what is read and planned, copied, or run",
             [](Config& config, bool on) {
               if (on) config.verbosity = Verbosity::kVerbose;
             }),
      Switch("no-progress", "no progress line",
             [](Config& config, bool on) { config.progress = !on; }),
  };
}

Flag DeviceFlag() {
  return Value("device", "auto|cpu|cuda:N", "where layers are computed", SetDevice);
}

std::vector<Flag> RunFlags() {
  return {
      DeviceFlag(),
      Bytes("cpu-memory",
            "hard cap of what weights, KV and buffers take of CPU memory (90 % of what is free)",
            &Config::cpu_memory_bytes),
      Bytes("gpu-memory", "hard cap of GPU memory", &Config::gpu_memory_bytes),
      Bytes("disk-space", "hard cap of disk space (90 % of what is free in --offload-dir)",
            &Config::disk_space_bytes),
      Bytes("emulate-gpu", "a separate arena of this size in CPU memory stands for a GPU's memory",
            &Config::emulate_gpu_bytes),
      OffloadDirFlag(),
      {"percent", FlagKind::kValue, "Wg Wc Kg Kc Ag Ac",
       "percent of weights, KV and activations on gpu and cpu; the rest is on disk", SetPercent, 6},
      Value("policy", "FILE|auto",
            "a policy file; auto: the best by search where the machine's rates are known",
            SetPolicy),
      Value("machine", "FILE", "a machine file: rates, and the machine that a plan is for",
            [](Config& config, const std::string& text) { config.machine = ReadMachine(text); }),
      Switch("no-overlap", "serial schedule, for comparison",
             [](Config& config, bool on) { config.overlap = !on; }),
      Switch("cpu-attention", "the CPU attends to KV that is not on the gpu (as the policy says)",
             [](Config& config, bool on) { config.cpu_attention = on; }),
      Switch("no-cpu-attention", "all KV is attended to on the device",
             [](Config& config, bool on) { config.cpu_attention = !on; }),
      ThreadsFlag(),
      CpuComputeFlag(),
      Integer("gpu-batch-size", "rows computed together (up to 64, as memory allows)",
              &Config::gpu_batch_size, 1, kMaxRows),
      Integer("num-gpu-batches", "batches that one load of a layer serves (as memory allows)",
              &Config::num_gpu_batches, 1, kMaxRows),
      Integer("prefill-chunk", "tokens of a prefill pass computed at a time (512)",
              &Config::prefill_chunk, 1, kMaxTokens),
      Value("report", "FILE", "write a JSON report",
            [](Config& config, const std::string& text) { config.report = text; }),
      Value("trace", "FILE", "write a Chrome trace of the run, for Perfetto",
            [](Config& config, const std::string& text) { config.trace = text; }),
      SeedFlag("run seed; each row draws from (seed, line number)"),
  };
}

std::vector<Flag> SamplingFlags() {
  return {
      Value("max-new-tokens", "N", "tokens to generate for a request that does not say (64)",
            [](Config& config, const std::string& text) {
              config.sampling.max_tokens = ParseInteger("max-new-tokens", text, 1, kMaxTokens);
            }),
      Value("min-new-tokens", "N", "end of text and stop strings do not count before (0)",
            [](Config& config, const std::string& text) {
              config.sampling.min_tokens = ParseInteger("min-new-tokens", text, 0, kMaxTokens);
            }),
      Value("temperature", "X", "0 is greedy (0)",
            [](Config& config, const std::string& text) {
              config.sampling.temperature = ParseReal("temperature", text, 0.0, 100.0);
            }),
      Value("top-p", "X",
            "draw from the smallest set of tokens with this probability mass (1: off)",
            [](Config& config, const std::string& text) {
              config.sampling.top_p = ParseReal("top-p", text, 1e-9, 1.0);
            }),
      Value("top-k", "N", "draw from the N likeliest tokens (0: off)",
            [](Config& config, const std::string& text) {
              config.sampling.top_k = ParseInteger("top-k", text, 0, kMaxTokens);
            }),
      {"stop", FlagKind::kList, "STR", "end before this text; may be given up to 16 times",
       [](Config& config, const std::string& text) {
         if (text.empty())
           throw Error(ErrorCode::kFlag,
                       "--stop: an empty stop string would end every row at once");
         if (config.sampling.stop.size() == 16)
           throw Error(ErrorCode::kFlag, "--stop: at most 16 stop strings");
         config.sampling.stop.push_back(text);
       }},
      Switch("ignore-eos", "go on past the end-of-text token",
             [](Config& config, bool on) { config.sampling.ignore_eos = on; }),
      Value("logprobs", "N", "log-probabilities of the chosen token and the N likeliest",
            [](Config& config, const std::string& text) {
              config.sampling.num_logprobs = ParseInteger("logprobs", text, 0, 20);
            }),
  };
}

std::vector<Flag> TokenizerFlags() {
  return {
      Value("tokenizer", "DIR",
            "folder of the tokenizer (the model's own; 'none': prompts are token_ids)",
            [](Config& config, const std::string& text) { config.tokenizer = text; }),
  };
}

std::vector<Flag> ConvertFlags() {
  return {
      Value("output", "DIR", "the store: a new folder",
            [](Config& config, const std::string& text) { config.output = text; }),
      Switch("overwrite", "replace an existing store",
             [](Config& config, bool on) { config.overwrite = on; }),
      ThreadsFlag(),
      SeedFlag("seed of dummy weights (0)"),
  };
}

std::vector<Flag> ProfileFlags() {
  return {
      Value("output", "FILE",
            "write the machine file here too, over what is there; one is cached anyway",
            [](Config& config, const std::string& text) { config.output = text; }),
      Switch("quick", "fewer and shorter rounds: about 20 s in place of 90",
             [](Config& config, bool on) { config.quick = on; }),
      DeviceFlag(),
      OffloadDirFlag(),
      ThreadsFlag(),
      CpuComputeFlag(),
  };
}

std::vector<Flag> SyntheticFlags() {
  return {
      Integer("prompt-len", "tokens of each prompt, the start token included (512)",
              &Config::prompt_len, 1, kMaxTokens),
      Integer("gen-len", "tokens to generate for each prompt (32)", &Config::gen_len, 1,
              kMaxTokens),
      Integer("num-requests", "prompts (one block of the given batches; 64 where none are given)",
              &Config::num_requests, 1, kMaxRequests),
  };
}

std::vector<Flag> Joined(std::initializer_list<std::vector<Flag>> groups) {
  std::vector<Flag> flags;
  for (const std::vector<Flag>& group : groups) {
    flags.insert(flags.end(), group.begin(), group.end());
  }
  return flags;
}

std::vector<Flag> OutputFlags() {
  return {
      Value("output", "FILE", "completions in JSONL (default: - , standard output)",
            [](Config& config, const std::string& text) { config.output = text; }),
      Switch("overwrite", "replace an existing output",
             [](Config& config, bool on) { config.overwrite = on; }),
      Switch("resume", "go on with the interrupted run that left OUTPUT.part",
             [](Config& config, bool on) { config.resume = on; }),
  };
}

// So that a command line of `generate` is planned by changing its verb.
std::vector<Flag> UnusedOutputFlags() {
  return {
      Value("output", "FILE", "taken as generate takes it; nothing is written there",
            [](Config& config, const std::string& text) { config.output = text; }),
      Switch("overwrite", "taken as generate takes it; nothing is replaced",
             [](Config& config, bool on) { config.overwrite = on; }),
      Switch("resume", "taken as generate takes it; nothing is resumed",
             [](Config& config, bool on) { config.resume = on; }),
  };
}

void SetMaxLoss(Config& config, const std::string& text) {
  const bool percent = text.ends_with('%');
  const std::string number = percent ? text.substr(0, text.size() - 1) : text;
  config.max_loss_frac = ParseReal("max-loss", number, 0.0, 1000.0) / (percent ? 100.0 : 1.0);
}

std::vector<Flag> CalibrateFlags() {
  return {
      Value("text", "FILE", "text that the model is measured on",
            [](Config& config, const std::string& text) { config.perplexity = text; }),
      Value("max-loss", "N%", "how much perplexity may rise (1%)", SetMaxLoss),
      Value("output", "FILE", "write the budgets here, a policy file, over what is there",
            [](Config& config, const std::string& text) { config.output = text; }),
      Integer("window", "tokens of a sample (640)", &Config::window, 2, kMaxTokens),
      Integer("prefill", "of them the prompt; the others are scored (half)", &Config::prefill, 1,
              kMaxTokens),
      Integer("sample", "windows spread over the text (16)", &Config::sample, 1, kMaxRows),
      ParseSpecialFlag(),
  };
}

std::vector<Flag> ScoreFlags() {
  return {
      Value("input", "FILE", "texts: JSONL, or one a line in a .txt file; - is standard input",
            [](Config& config, const std::string& text) { config.input = text; }),
      Value("output", "FILE", "scores in JSONL (default: - , standard output)",
            [](Config& config, const std::string& text) { config.output = text; }),
      Switch("overwrite", "replace an existing output",
             [](Config& config, bool on) { config.overwrite = on; }),
      Value("perplexity", "FILE", "perplexity of this text, in place of --input",
            [](Config& config, const std::string& text) { config.perplexity = text; }),
      Integer("window", "tokens the model sees at a time (2048, or all its positions)",
              &Config::window, 2, kMaxTokens),
      Integer("stride", "tokens from one window to the next, scored once (512)", &Config::stride, 1,
              kMaxTokens),
      Switch(
          "start-each-window",
          "put the start token in place of each window's first token; for models that lean on it",
          [](Config& config, bool on) { config.start_each_window = on; }),
      Integer("prefill",
              "known tokens of the first pass; the others follow one a pass (all; with h2o and "
              "window what precedes the first scored token)",
              &Config::prefill, 1, kMaxTokens),
      ParseSpecialFlag(),
  };
}

std::vector<Flag> PolicyOutputFlags() {
  return {
      Value("output", "FILE", "write the best policy here, over what is there",
            [](Config& config, const std::string& text) { config.output = text; }),
  };
}

std::vector<Flag> SimulateFlags() {
  return {
      Switch("as-flexgen", "FlexGen's schedule and the machine file's effective rates of it",
             [](Config& config, bool on) { config.as_flexgen = on; }),
  };
}

void SetRunVerb(Config& config, const std::string& text) {
  config.run_verb = SweptVerb(text);
  if (config.run_verb) return;
  throw Error(ErrorCode::kFlag,
              fmt::format("--verb {}: expected bench or simulate", Printable(text)));
}

std::vector<Flag> SweepFlags() {
  return {
      Value("output", "DIR", "folder for the results; a sweep that was cut short goes on there",
            [](Config& config, const std::string& text) { config.output = text; }),
      Value("verb", "bench|simulate", "what each point is (as the grid says, or bench)",
            SetRunVerb),
  };
}

// "10%,20%,64"
void SetKvBudgets(Config& config, const std::string& text) {
  config.kv_budgets.clear();
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    config.kv_budgets.push_back(ParseAmount("kv-budgets", text.substr(begin, end - begin), 1));
    begin = end + 1;
  }
}

std::vector<Flag> SearchFlags() {
  return {
      Value("kv-budgets", "N|N%,...",
            "KV budgets to try, in place of the one of --kv-budget; less KV is faster and less "
            "accurate: the table has the best policy of each, the file the fastest",
            SetKvBudgets),
      Switch("allow-4bit",
             "try weights and KV in fewer bits too: faster where links or memory are short, less "
             "accurate",
             [](Config& config, bool on) { config.allow_4bit = on; }),
  };
}

std::vector<Flag> InputFlags() {
  return {
      Value("input", "FILE", "prompts: JSONL, or one a line in a .txt file; - is standard input",
            [](Config& config, const std::string& text) { config.input = text; }),
      ParseSpecialFlag(),
  };
}

}  // namespace

std::vector<Flag> FlagsOf(Verb verb) {
  switch (verb) {
    case Verb::kGenerate:
      return Joined({InputFlags(), OutputFlags(), SamplingFlags(), ModelFlags(), TokenizerFlags(),
                     RunFlags(), KvFlags(), TerminalFlags()});
    case Verb::kScore:
      return Joined(
          {ScoreFlags(), ModelFlags(), TokenizerFlags(), RunFlags(), KvFlags(), TerminalFlags()});
    case Verb::kBench:
      return Joined({SyntheticFlags(), ModelFlags(), RunFlags(), KvFlags(), TerminalFlags()});
    case Verb::kPlan:
      return Joined({SyntheticFlags(), InputFlags(), UnusedOutputFlags(), SamplingFlags(),
                     ModelFlags(), TokenizerFlags(), RunFlags(), KvFlags(), TerminalFlags()});
    case Verb::kCalibrate:
      return Joined({CalibrateFlags(), ModelFlags(), TokenizerFlags(), RunFlags(), KvFlags(),
                     TerminalFlags()});
    case Verb::kProfile:
      return Joined({ProfileFlags(), TerminalFlags()});
    case Verb::kSearch:
      return Joined({SyntheticFlags(), InputFlags(), PolicyOutputFlags(), SearchFlags(),
                     SamplingFlags(), ModelFlags(), TokenizerFlags(), RunFlags(), KvFlags(),
                     TerminalFlags()});
    case Verb::kSimulate:
      return Joined({SyntheticFlags(), InputFlags(), SimulateFlags(), SamplingFlags(), ModelFlags(),
                     TokenizerFlags(), RunFlags(), KvFlags(), TerminalFlags()});
    case Verb::kConvert:
      return Joined({ConvertFlags(), ModelFlags(), TokenizerFlags(), TerminalFlags()});
    case Verb::kSweep:
      return Joined({SweepFlags(), TerminalFlags()});
    case Verb::kInspect:
      return {};
  }
  return {};
}

}  // namespace spillway
