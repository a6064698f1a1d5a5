#include "src/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "spillway/error.h"
#include "src/config/parse_value.h"
#include "src/formats/machine_file.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::variant<Config, Printout> Parse(std::vector<const char*> words) {
  words.insert(words.begin(), "spillway");
  return ParseConfig(static_cast<int>(words.size()), words.data());
}

Config ParseGenerate(std::vector<const char*> words) {
  words.insert(words.begin(), {"generate", "--input", "in.jsonl"});
  return std::get<Config>(Parse(words));
}

std::string RefusalOf(const std::vector<const char*>& words, ErrorCode code = ErrorCode::kFlag) {
  try {
    Parse(words);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "accepted";
}

// Sets a variable for one test.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Environment() { ::unsetenv(name_); }

 private:
  const char* name_;
};

// Files are this process's own: tests of this file run beside each other.
std::string Write(const std::string& name, const std::string& text) {
  static const TemporaryFolder folder;
  return folder.Write(name, text).string();
}

std::string WriteToml(const std::string& text) { return Write("flags.toml", text); }

TEST(ConfigTest, ReadsEveryKindOfFlag) {
  const Config config =
      ParseGenerate({"--output", "out.jsonl", "--max-new-tokens", "7", "--temperature=0.5",
                     "--stop", "a", "--stop", "-b", "--ignore-eos", "--gpu-batch-size", "3",
                     "--cpu-memory", "1.5GiB", "--overwrite"});
  EXPECT_EQ(config.input, "in.jsonl");
  EXPECT_EQ(config.output, "out.jsonl");
  EXPECT_EQ(config.sampling.max_tokens, 7);
  EXPECT_EQ(config.sampling.temperature, 0.5);
  EXPECT_EQ(config.sampling.stop, (std::vector<std::string>{"a", "-b"}));
  EXPECT_TRUE(config.sampling.ignore_eos);
  EXPECT_TRUE(config.overwrite);
  EXPECT_EQ(config.gpu_batch_size, 3);
  EXPECT_EQ(config.cpu_memory_bytes, 3LL << 29);
}

TEST(ConfigTest, TheInputMayBeAWord) {
  EXPECT_EQ(std::get<Config>(Parse({"generate", "p.txt"})).input, "p.txt");
  EXPECT_THAT(RefusalOf({"generate", "p.txt", "--input", "q.txt"}), HasSubstr("given twice"));
  const Environment input("SPILLWAY_INPUT", "from_environment.txt");
  EXPECT_EQ(std::get<Config>(Parse({"generate", "p.txt"})).input, "p.txt");
}

TEST(ConfigTest, FlagBeatsEnvironmentBeatsFile) {
  const std::string path = WriteToml(
      "seed = 1\nthreads = 5\n[generate]\nmax-new-tokens = 3\nstop = [\"x\", \"y\"]\n"
      "overwrite = true\n[bench]\nprompt-len = 3\n");
  const Environment seed("SPILLWAY_SEED", "2");
  const Environment tokens("SPILLWAY_MAX_NEW_TOKENS", "4");
  const Config config = ParseGenerate({"--config", path.c_str(), "--max-new-tokens", "9"});
  EXPECT_EQ(config.sampling.max_tokens, 9);
  EXPECT_EQ(config.seed, 2U);
  EXPECT_EQ(config.num_threads, 5);
  EXPECT_EQ(config.sampling.stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(config.overwrite);
}

TEST(ConfigTest, AKeyAtTheTopIsForTheVerbsThatHaveIt) {
  const std::string path = WriteToml("max-new-tokens = 7\nthreads = 3\nkv-bits = \"8,4\"\n");
  EXPECT_EQ(std::get<Config>(Parse({"bench", "--config", path.c_str()})).num_threads, 3);
  EXPECT_EQ(std::get<Config>(Parse({"inspect", "x", "--config", path.c_str()})).inspect_path, "x");
  const std::string own = WriteToml("[bench]\nmax-new-tokens = 7\n");
  EXPECT_THAT(RefusalOf({"bench", "--config", own.c_str()}), HasSubstr("max-new-tokens: unknown"));
  const std::string none = WriteToml("max-new-token = 7\n");
  EXPECT_THAT(RefusalOf({"bench", "--config", none.c_str()}), HasSubstr("max-new-token: unknown"));
}

TEST(ConfigTest, ARefusedValueSaysWhereItStands) {
  const std::string path = WriteToml("weight-bits = 5\n");
  EXPECT_THAT(RefusalOf({"generate", "a", "--config", path.c_str()}), HasSubstr("(from " + path));
  const Environment bits("SPILLWAY_WEIGHT_BITS", "6");
  EXPECT_THAT(RefusalOf({"generate", "a", "--config", path.c_str()}),
              HasSubstr("(from SPILLWAY_WEIGHT_BITS)"));
  EXPECT_THAT(RefusalOf({"generate", "a", "--weight-bits", "7"}), Not(HasSubstr("from")));
}

TEST(ConfigTest, ARefusedCombinationSaysWhereItsFlagsStand) {
  const std::string path = WriteToml("kv-policy = \"full\"\n");
  const Environment budget("SPILLWAY_KV_BUDGET", "20%");
  EXPECT_THAT(RefusalOf({"generate", "a", "--config", path.c_str()}),
              AllOf(HasSubstr("(--kv-budget from SPILLWAY_KV_BUDGET)"),
                    HasSubstr("(--kv-policy from " + path + ")")));
  EXPECT_THAT(RefusalOf({"generate", "a", "--kv-budget", "20%"}), Not(HasSubstr("from")));
}

TEST(ConfigTest, OfOppositeSwitchesTheNearerSourceWins) {
  const std::string path = WriteToml("quiet = true\nno-cpu-attention = true\n");
  const Environment attention("SPILLWAY_CPU_ATTENTION", "1");
  const Config config = ParseGenerate({"--config", path.c_str(), "--verbose"});
  EXPECT_EQ(config.verbosity, Verbosity::kVerbose);
  EXPECT_EQ(config.cpu_attention, true);
  const Config flag = ParseGenerate({"--config", path.c_str(), "--no-cpu-attention"});
  EXPECT_EQ(flag.cpu_attention, false);
  EXPECT_EQ(flag.verbosity, Verbosity::kQuiet);
  EXPECT_EQ(ParseGenerate({"--quiet=false", "--verbose"}).verbosity, Verbosity::kVerbose);
}

TEST(ConfigTest, TheInputMayFollowSixPercents) {
  const auto parsed = Parse({"generate", "--percent", "0", "100", "0", "100", "0", "100", "p.txt"});
  EXPECT_EQ(std::get<Config>(parsed).input, "p.txt");
}

// A machine file with rates of products in fp32, or in bf16.
std::string WriteMachine(const std::string& isa) {
  Machine machine = ReadMachine(SPILLWAY_SOURCE_DIR "/examples/machines/xeon-2-cores.json");
  machine.isa = isa;
  return Write(isa + ".json", MachineJson(machine));
}

TEST(ConfigTest, RatesOfAnotherArithmeticAreRefused) {
  const std::string fp32 = WriteMachine("amx");
  const std::string bf16 = WriteMachine("amx_bf16");
  const auto words = [](const char* verb, const std::string& machine, const char* compute) {
    return std::vector<const char*>{
        verb, "--input", "a", "--machine", machine.c_str(), "--cpu-compute", compute};
  };
  for (const char* verb : {"generate", "score"}) {
    EXPECT_THAT(RefusalOf(words(verb, fp32, "bf16")),
                HasSubstr("--cpu-compute bf16: the rates of --machine are of products in fp32"));
    EXPECT_THAT(RefusalOf(words(verb, bf16, "fp32")),
                HasSubstr("--cpu-compute fp32: the rates of --machine are of products in bf16"));
    EXPECT_EQ(RefusalOf(words(verb, fp32, "fp32")), "accepted");
    EXPECT_EQ(RefusalOf(words(verb, bf16, "bf16")), "accepted");
  }
  EXPECT_EQ(RefusalOf({"plan", "--machine", bf16.c_str()}), "accepted");
}

TEST(ConfigTest, RefusesWithTheReason) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> cases = {
    {{"generte"}, "did you mean generate?"},
    {{"sweep"}, "give the TOML file"},
    {{"sweep", "g.toml"}, "--output: give the folder"},
    {{"sweep", "g.toml", "--output", "d", "--verb", "plan"}, "expected bench or simulate"},
    {{"generate"}, "--input"},
    {{"generate", "a", "--outptu", "b"}, "did you mean --output?"},
    {{"generate", "a", "--cofig", "b"}, "did you mean --config?"},
    {{"generate", "a", "--hep"}, "did you mean --help?"},
    {{"generate", "a", "--frobnicate"}, "--frobnicate: unknown flag"},
    {{"generate", "a", "b"}, "one word too many"},
    {{"generate", "a", "--threads", "8x"}, "--threads 8x"},
    {{"generate", "a", "--threads", "0"}, "from 1 to 1024"},
    {{"generate", "a", "--threads", " 8"}, "--threads"},
    {{"generate", "a", "--threads", "0x8"}, "--threads"},
    {{"generate", "a", "--threads", "99999999999999999999"}, "--threads"},
    {{"generate", "a", "--threads"}, "--threads"},
    {{"generate", "a", "--threads", "1", "--threads", "2"}, "--threads: given more than once"},
    {{"generate", "a", "--config", "b", "--config", "c"}, "--config: given more than once"},
    {{"generate", "a", "--gpu-batch", "3"}, "did you mean --gpu-batch-size?"},
    {{"generate", "a", "--max-tokens", "3"}, "did you mean --max-new-tokens?"},
    {{"generate", "a", "--batch-size", "3"}, "did you mean --gpu-batch-size?"},
    {{"generate", "a", "--kv", "h2o"}, "did you mean --kv-policy?"},
    {{"generate", "a", "--compress-weight"}, "did you mean --weight-bits?"},
    {{"generate", "a", "--cpu-cache-compute"}, "did you mean --cpu-attention?"},
    {{"generate", "a", "--gen-len", "3"},
     "--gen-len: unknown flag; bench, plan, search, simulate have it; did you mean "
     "--max-new-tokens?"},
    {{"generate", "a", "--tokens-max", "3"}, "unknown flag"},
    {{"gen", "a"}, "did you mean generate?"},
    {{"generate", "a", "--cpu-attention", "--no-cpu-attention"},
     "--cpu-attention and --no-cpu-attention: "},
    {{"generate", "a", "--quiet", "--verbose"}, "--quiet and --verbose: "},
    {{"generate", "a", "--gpu-batch-size", "0"}, "--gpu-batch-size"},
    {{"generate", "a", "--temperature", "nan"}, "--temperature"},
    {{"generate", "a", "--temperature", "-1"}, "--temperature"},
    {{"generate", "a", "--top-p", "7"}, "--top-p"},
    {{"generate", "a", "--cpu-memory", "3 GiB"}, "--cpu-memory"},
    {{"generate", "a", "--cpu-memory", "-3GiB"}, "--cpu-memory"},
    {{"generate", "a", "--stop", ""}, "--stop"},
    {{"generate", "a", "--overwrite=maybe"}, "--overwrite"},
#if defined(SPILLWAY_CUDA)
    {{"generate", "a", "--device", "cuda"}, "expected auto"},
    {{"generate", "a", "--device", "cuda:-1"}, "--device"},
    {{"generate", "a", "--device", "cuda:x"}, "--device"},
    {{"generate", "a", "--device", "cuda:0", "--kv-bits", "4"}, "--kv-bits 4: with --device cuda"},
#else
    {{"generate", "a", "--device", "cuda:0"}, "no CUDA"},
#endif
    {{"generate", "a", "--device", "tpu"}, "expected auto"},
    {{"generate", "a", "--percent", "30", "80", "0", "100", "0", "100"}, "more than 100"},
    {{"generate", "a", "--percent=0 100 0 100"}, "--percent"},
    {{"generate", "a", "--percent", "0", "100"}, "--percent 0 100: expected six numbers"},
    {{"generate", "a", "--percent", "0", "99", "0", "100", "0", "100", "7"},
     "--percent: takes 6 numbers, and 7 is one more"},
    {{"plan", "--percent", "0", "99", "0", "100", "0", "100", "7", "--quiet"},
     "--percent: takes 6 numbers, and 7 is one more"},
    {{"generate", "a", "--kv-bits", "2"}, "--kv-bits 2: expected 16, 8 or 4"},
    {{"generate", "a", "--kv-bits", "4.0"}, "--kv-bits 4.0"},
    {{"generate", "a", "--kv-bits", ""}, "--kv-bits"},
    {{"generate", "a", "--kv-bits", "8,"}, "--kv-bits 8,: expected 16, 8 or 4, or two of them"},
    {{"generate", "a", "--kv-bits", "8,4,4"}, "--kv-bits 8,4,4: expected 16, 8 or 4"},
    {{"generate", "a", "--kv-bits", "16,4", "--kv-dtype", "bf16"}, "and --kv-bits is 16,4"},
    {{"generate", "a", "--kv-bits", "4", "--kv-dtype", "bf16"}, "--kv-dtype bf16: belongs to"},
    {{"generate", "a", "--weight-bits", "5"}, "expected 16, 8 or 4"},
    {{"generate", "a", "--weight-bits", "04"}, "expected 16, 8 or 4"},
    {{"generate", "a", "--weight-bits", "8", "--allow-nonfinite-weights"}, "in 8 bits"},
    {{"generate", "a", "--kv-policy", "lru"}, "expected full, h2o, window"},
    {{"generate", "a", "--kv-budget", "20%"}, "give --kv-policy h2o"},
    {{"generate", "a", "--kv-heavy", "3"}, "give --kv-policy h2o"},
    {{"calibrate", "--text", "a", "--rolling"}, "within the model's positions; leave it out"},
    {{"generate", "a", "--kv-policy", "h2o", "--kv-budget", "0"}, "--kv-budget"},
    {{"generate", "a", "--kv-policy", "h2o", "--kv-budget", "0%"}, "--kv-budget"},
    {{"generate", "a", "--kv-policy", "h2o", "--kv-budget", "120%"}, "--kv-budget"},
    {{"generate", "a", "--kv-policy", "h2o", "--kv-budget", "20 %"}, "--kv-budget"},
    {{"generate", "a", "--kv-policy", "h2o", "--kv-sinks", "4"}, "--kv-policy window"},
    {{"generate", "a", "--kv-policy", "window", "--kv-heavy", "4"}, "no heavy hitters"},
    {{"generate", "a", "--kv-policy", "window", "--kv-budget", "4", "--kv-sinks", "4"},
     "--kv-budget: leaves no room for a recent token beside --kv-sinks"},
    {{"generate", "a", "--kv-policy", "h2o", "--kv-recent", "0"}, "--kv-recent"},
    {{"generate", "a", "--kv-policy", "h2o", "--kv-budget", "101%"}, "--kv-budget 101%"},
    {{"generate", "a", "--kv-policy", "h2o", "--kv-budget", "6", "--kv-heavy", "50"},
     "no recent token"},
    {{"generate", "a", "--kv-policy", "h2o", "--kv-budget", "6", "--kv-recent", "50"},
     "less than --kv-recent"},
    {{"generate", "a", "--kv-policy", "h2o", "--kv-budget", "9", "--kv-heavy", "4", "--kv-recent",
      "5"},
     "leave one of the three out"},
    {{"generate", "a", "--resume"}, "--resume"},
    {{"generate", "a", "--output", "b", "--resume", "--overwrite"}, "--resume and --overwrite"},
    {{"generate", "a", "--config", "/nonexistent.toml"}, "--config"},
    {{"generate", "a", "--min-new-tokens", "9", "--max-new-tokens", "8"}, "--min-new-tokens 9"},
    {{"inspect"}, "give the folder"},
  };
  for (const auto& [words, part] : cases) {
    EXPECT_THAT(RefusalOf(words), HasSubstr(part)) << ::testing::PrintToString(words);
  }
}

TEST(ConfigTest, PercentIsSixNumbers) {
  const Config config = ParseGenerate({"--percent", "20", "80", "0", "50.5", "0", "100"});
  ASSERT_TRUE(config.percent);
  EXPECT_EQ(*config.percent, (std::array<double, 6>{20, 80, 0, 50.5, 0, 100}));
}

TEST(ConfigTest, KvAmountsAreNumbersOrShares) {
  const Config config = ParseGenerate({"--kv-policy", "h2o", "--kv-budget", "12.5%"});
  EXPECT_EQ(config.kv_budget, (TokenAmount{0.125, 0}));
  const Config parts =
      ParseGenerate({"--kv-policy", "h2o", "--kv-heavy", "0", "--kv-recent", "64"});
  EXPECT_EQ(parts.kv_heavy, (TokenAmount{0.0, 0}));
  EXPECT_EQ(parts.kv_recent, (TokenAmount{0.0, 64}));
}

std::string WriteKvFile(const std::string& kv) {
  return Write("kv_policy.json", R"({"version":1,"kv":)" + kv + "}");
}

TEST(ConfigTest, KvFlagsReplaceWhatTheFileSaysAmountByAmount) {
  const std::string h2o = WriteKvFile(R"({"policy":"h2o","budget":{"kept":{"tokens":10}}})");
  const KvPolicy heavy = ParseGenerate({"--policy", h2o.c_str(), "--kv-heavy", "2"}).kv;
  EXPECT_EQ(KeepOf(heavy, 0, 100), (KvKeep{0, 2, 8}));
  const KvPolicy same = ParseGenerate({"--policy", h2o.c_str(), "--kv-sinks", "0"}).kv;
  EXPECT_EQ(KeepOf(same, 0, 100), (KvKeep{0, 5, 5}));
  const KvPolicy window = ParseGenerate({"--policy", h2o.c_str(), "--kv-policy", "window"}).kv;
  EXPECT_EQ(KeepOf(window, 0, 100), (KvKeep{0, 0, 10}));
  EXPECT_THAT(RefusalOf({"generate", "a", "--policy", h2o.c_str(), "--kv-heavy", "10"}),
              HasSubstr("the policy file's budget: leaves no recent token beside --kv-heavy"));
  EXPECT_THAT(RefusalOf({"generate", "a", "--policy", h2o.c_str(), "--kv-recent", "11"}),
              HasSubstr("the policy file's budget: is less than --kv-recent"));
  const std::string sinks =
      WriteKvFile(R"({"policy":"window","budget":{"kept":{"tokens":10}},"num_sinks":4})");
  const KvPolicy fewer = ParseGenerate({"--policy", sinks.c_str(), "--kv-budget", "8"}).kv;
  EXPECT_EQ(KeepOf(fewer, 0, 100), (KvKeep{4, 0, 4}));
  EXPECT_THAT(RefusalOf({"generate", "a", "--policy", sinks.c_str(), "--kv-budget", "3"}),
              HasSubstr("--kv-budget: leaves no room for a recent token beside the policy file's "
                        "num_sinks"));
  const std::string layers = WriteKvFile(
      R"({"policy":"h2o","layer_budgets":[{"kept":{"tokens":8}},{"kept":{"tokens":9}}]})");
  EXPECT_THAT(RefusalOf({"generate", "a", "--policy", layers.c_str(), "--kv-heavy", "3"}),
              HasSubstr("has many budgets"));
  const KvPolicy all = ParseGenerate({"--policy", layers.c_str(), "--kv-budget", "50%"}).kv;
  EXPECT_EQ(KeepOf(all, 1, 100), (KvKeep{0, 25, 25}));
  const std::string heads = WriteKvFile(R"({"policy":"h2o","head_budgets":[[0.1,0.2],[0.3,0.4]]})");
  EXPECT_EQ(KeepOf(ParseGenerate({"--policy", heads.c_str()}).kv, {1, 0}, 100),
            (KvKeep{0, 15, 15}));
  EXPECT_THAT(RefusalOf({"generate", "a", "--policy", heads.c_str(), "--kv-policy", "window"}),
              HasSubstr("budgets per KV head, which only h2o takes"));
  const KvPolicy even = ParseGenerate({"--policy", heads.c_str(), "--kv-budget", "50%"}).kv;
  EXPECT_EQ(KeepOf(even, {1, 0}, 100), (KvKeep{0, 25, 25}));
  const KvPolicy full = ParseGenerate({"--policy", heads.c_str(), "--kv-policy", "full"}).kv;
  EXPECT_TRUE(full.head_budgets.empty());
}

TEST(ConfigTest, AcceptsWhatHappensAnyway) {
  ParseGenerate({"--policy", "auto", "--weight-bits", "16", "--kv-bits", "16", "--kv-dtype", "bf16",
                 "--kv-policy", "full", "--no-overlap", "--device", "cpu", "--gpu-memory",
                 "16GiB"});
}

TEST(ConfigTest, RefusesBadFiles) {
  for (const auto& [text, part] : std::vector<std::pair<std::string, const char*>>{
           {"sed = 1\n", "did you mean --seed?"},
           {"[generat]\nseed = 1\n", "is no verb"},
           {"seed = \n", "line 1"},
           {"seed = [1, 2]\n", "expected one value"},
           {"seed = 1979-05-27\n", "expected a string"},
           {"weight-bits = 3\n", "--weight-bits 3"}}) {
    const std::string path = WriteToml(text);
    EXPECT_THAT(RefusalOf({"generate", "a", "--config", path.c_str()}), HasSubstr(part)) << text;
  }
}

TEST(ConfigTest, HelpListsTheFlags) {
  const auto help = std::get<Printout>(Parse({"generate", "--help"}));
  EXPECT_THAT(help.text, HasSubstr("--max-new-tokens"));
  EXPECT_THAT(std::get<Printout>(Parse({})).text, HasSubstr("generate"));
}

TEST(ConfigTest, HelpHasHeadingsExamplesAndLetters) {
  const std::string help = std::get<Printout>(Parse({"generate", "-h"})).text;
  EXPECT_EQ(std::get<Printout>(Parse({"help", "generate"})).text, help);
  std::size_t at = 0;
  for (const char* part : {"Job:", "-i,--input", "-o,--output", "Model:", "-m,--model",
                           "Sampling:", "Memory and device:", "KV cache:", "Examples:"}) {
    const std::size_t found = help.find(part, at);
    ASSERT_NE(found, std::string::npos) << part;
    at = found;
  }
  EXPECT_THAT(RefusalOf({"help", "generat"}), HasSubstr("did you mean generate"));
}

TEST(ConfigTest, FlagsThatAreTypedMostHaveALetter) {
  const Config config =
      std::get<Config>(Parse({"generate", "-m", "opt", "-i", "a.jsonl", "-o", "b.jsonl"}));
  EXPECT_EQ(config.model, "opt");
  EXPECT_EQ(config.input, "a.jsonl");
  EXPECT_EQ(config.output, "b.jsonl");
  EXPECT_THAT(RefusalOf({"generate", "-m", "a", "--model", "b"}), HasSubstr("more than once"));
}

TEST(ConfigTest, AMachineIsAFileOrAName) {
  const std::vector<const char*> named = {"plan", "--machine", "t4", "--num-requests", "1"};
  EXPECT_EQ(std::get<Config>(Parse(named)).machine->device, Tier::kGpu);
  EXPECT_THAT(RefusalOf({"plan", "--machine", "t5"}, ErrorCode::kMachine),
              HasSubstr("did you mean t4?; there are a100-80"));
  EXPECT_THAT(RefusalOf({"plan", "--machine", "./t4"}, ErrorCode::kMachine),
              HasSubstr("cannot be read"));
}

TEST(ParseValueTest, Bytes) {
  EXPECT_EQ(ParseBytes("m", "16GiB"), 16LL << 30);
  EXPECT_EQ(ParseBytes("m", "16GB"), 16'000'000'000LL);
  EXPECT_EQ(ParseBytes("m", "512MiB"), 512LL << 20);
  EXPECT_EQ(ParseBytes("m", "4096"), 4096);
  EXPECT_EQ(ParseBytes("m", "1.5KiB"), 1536);
  // Slurm's, Docker's, Kubernetes' and systemd's.
  for (const char* text : {"16G", "16g", "16Gi", "16gib", "16384M"}) {
    EXPECT_EQ(ParseBytes("m", text), 16LL << 30) << text;
  }
  EXPECT_EQ(ParseBytes("m", "2kb"), 2000);
  EXPECT_EQ(ParseBytes("m", "7b"), 7);
  for (const char* bad :
       {"", "GiB", "1 GiB", "1GiBs", "1P", "1Gx", "G1", "-1", "nan", "inf", "1e30", "0x10"}) {
    EXPECT_THROW(ParseBytes("m", bad), Error) << bad;
  }
}

}  // namespace
}  // namespace spillway
