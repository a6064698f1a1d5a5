// Config: what the user asked for, checked. The first stage; everything later takes values from it.
// Thread rule: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "policies/search/calibrated_kv.h"
#include "policies/search/given_policy.h"
#include "spillway/cpu_compute.h"
#include "spillway/cut_side.h"
#include "spillway/kv_policy.h"
#include "spillway/machine.h"
#include "spillway/sampling.h"
#include "spillway/shard.h"
#include "spillway/special_text.h"

namespace spillway {

enum class Verb {
  kGenerate,
  kScore,
  kBench,
  kSweep,
  kPlan,
  kCalibrate,
  kProfile,
  kSearch,
  kSimulate,
  kConvert,
  kMerge,
  kTokenize,
  kInspect
};

// Verbs that plan and run nothing.
constexpr bool PlansOnly(Verb verb) {
  return verb == Verb::kPlan || verb == Verb::kSearch || verb == Verb::kSimulate;
}

// The word on the command line.
std::string_view VerbName(Verb verb);

// Verbs that a sweep runs.
inline constexpr std::array kSweptVerbs = {Verb::kBench, Verb::kSimulate};

// One of kSweptVerbs; nullopt for any other word.
std::optional<Verb> SweptVerb(std::string_view word);

enum class DeviceKind { kAuto, kCpu, kCuda };

// --device
struct DeviceChoice {
  DeviceKind kind = DeviceKind::kAuto;
  int index = 0;  // of kCuda
};

enum class BudgetsPer { kLayer, kHead };  // --per

enum class Verbosity { kQuiet, kNormal, kVerbose };

struct Config {
  Verb verb = Verb::kGenerate;

  std::string model;      // folder, store or built-in shape; empty: the bundled model
  std::string tokenizer;  // folder; empty: the model's own
  bool dummy_weights = false;
  bool allow_nonfinite_weights = false;
  DeviceChoice device;
  std::optional<int64_t> gpu_memory_bytes;
  std::optional<int64_t> cpu_memory_bytes;
  std::optional<int64_t> disk_space_bytes;
  std::optional<int64_t> emulate_gpu_bytes;
  std::filesystem::path offload_dir;             // empty: UserTemporaryFolder
  std::optional<std::array<double, 6>> percent;  // weights, KV, activations: on gpu and on cpu each
  std::optional<bool> cpu_attention;
  bool keeps_cpu_attention = false;  // which is what an interrupted run chose, and not stated
  bool overlap = true;
  bool shares_beginnings = true;
  int num_threads = 0;  // 0: physical cores
  CpuCompute cpu_compute = CpuCompute::kFp32;
  std::optional<GivenPolicy> policy;  // of a file; what a flag states beats it
  std::optional<Machine> machine;     // of a file
  std::optional<int64_t> gpu_batch_size;
  std::optional<int64_t> num_gpu_batches;
  std::optional<int64_t> prefill_chunk;
  std::optional<int> weight_bits;  // 16, 8, 4; not given: as the model is
  std::optional<DType> kv_dtype;
  std::optional<KvBits> kv_bits;
  std::optional<KvPolicyKind> kv_policy;
  std::optional<TokenAmount> kv_budget;
  std::optional<TokenAmount> kv_heavy;
  std::optional<TokenAmount> kv_recent;
  std::optional<int64_t> kv_sinks;
  std::optional<bool> rolling;
  KvPolicy kv;  // what these and the policy file come to
  std::filesystem::path report;
  std::filesystem::path trace;
  Verbosity verbosity = Verbosity::kNormal;
  bool progress = true;
  uint64_t seed = 0;

  std::filesystem::path input;
  std::filesystem::path output;  // "-": standard output; empty for verbs without one
  Sampling sampling;
  // Flags that are stated; sampling that they are silent on may come from generation_config.json.
  std::set<std::string> stated;
  bool ignore_generation_config = false;
  std::vector<std::string> from_generation_config;  // settings that were taken from it
  std::string chat_template;  // a file, or the name of one of the model's; empty: the model's
  std::string system;         // message of conversations without one
  std::optional<std::tm> chat_date;  // that templates are told; nullopt: today
  bool split_reasoning = false;
  SpecialText special_text = SpecialText::kParse;
  std::optional<CutSide> cut;        // of prompts that are too long
  bool strict = false;               // keys that nothing knows are errors of their lines
  bool allow_duplicate_ids = false;  // two lines may have one custom_id
  bool overwrite = false;
  std::string command;         // the words of the command line that go on with a run
  std::optional<bool> resume;  // not given: as an output that is there allows

  std::optional<Shard> shard;       // of the input's lines, which this run answers
  bool shard_by_scheduler = false;  // whose variables say which
  std::optional<int64_t> shard_count;
  int64_t grace_s = 0;             // after a scheduler's signal, for the block that runs
  int64_t interrupted_status = 0;  // exit status of an interrupted run; 0: the error's own

  std::optional<double> shadow_frac;  // of the rows, compared with the full KV cache; generate

  bool stream = false;     // answers leave as they come, the model stays
  int64_t pause_ms = 100;  // without a new line, after which a stream's batch begins

  std::filesystem::path perplexity;  // a text, in place of --input; "-": standard input
  std::optional<int64_t> window;     // tokens that the model sees at a time
  std::optional<int64_t> stride;     // tokens from one window to the next
  bool start_each_window = false;    // the first token of each window gives way to the start token
  std::optional<int64_t> prefill;    // known tokens of the first pass of a row

  std::optional<int64_t> prompt_len;  // tokens of a synthetic row
  int64_t prefix_len = 0;             // of them, those that all rows begin with
  std::optional<int64_t> gen_len;
  std::optional<int64_t> num_requests;

  bool quick = false;                   // of profile
  bool makes_profile = true;            // a quick one, for a job that is worth it
  double max_loss_frac = 0.01;          // of perplexity; calibrate, search
  bool pareto = false;                  // calibrate: measure other bits and bytes, too
  std::optional<double> kv_bytes_frac;  // calibrate: of a full cache of 16 bits, in place of a loss
  std::optional<BudgetsPer> budgets_per;  // calibrate
  std::optional<int64_t> sample;          // windows; calibrate
  bool as_flexgen = false;                // simulate
  bool allow_4bit = false;                // search may store weights and KV in fewer bits
  std::vector<TokenAmount> kv_budgets;    // that search chooses from; empty: kv's
  std::vector<CalibratedKv> calibration;  // that search chooses from; empty: the given KV

  std::filesystem::path grid;    // sweep
  std::optional<Verb> run_verb;  // of a sweep's runs; kBench or kSimulate

  std::vector<std::filesystem::path> shard_files;  // merge
  bool counts_only = false;                        // tokenize

  std::filesystem::path inspect_path;  // empty: the list of built-in shapes
  bool shapes = false;                 // inspect
};

// --offload-dir, or the user's own temporary folder, which a run that needs it makes. Throws: as
// UserTemporaryFolder.
std::filesystem::path OffloadFolder(const Config& config);

// A folder of the same disk that is there already: it, or the one that it will be made in.
std::filesystem::path OffloadDisk(const Config& config);

// Stream for people: null with --quiet, standard error where the answers go to standard output.
std::FILE* TerminalOf(const Config& config);

// Where progress is shown; null with --quiet and --no-progress.
std::FILE* ProgressStreamOf(const Config& config);

// Text that answers --help or --version.
struct Printout {
  std::string text;
};

// Reads the command line, then the environment (SPILLWAY_<FLAG>), then --config's TOML file: the
// first that states a flag wins. Throws: Error kFlag naming the flag and, for an unknown one, the
// nearest; kFlag.
std::variant<Config, Printout> ParseConfig(int argc, const char* const* argv);

}  // namespace spillway
