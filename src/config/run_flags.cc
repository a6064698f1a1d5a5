#include "src/config/run_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "spillway/error.h"
#include "src/config/flag_kinds.h"
#include "src/formats/machine_file.h"
#include "src/formats/policy_file.h"
#include "src/formats/shipped_machine.h"

namespace spillway {
namespace {

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

void SetPolicy(Config& config, const std::string& text) {
  if (text != "auto") config.policy = ReadPolicy(text);
}

Flag ThreadsFlag() {
  return Integer("threads", "compute threads (default: physical cores)", &Config::num_threads, 1,
                 kMaxThreads);
}

Flag CpuComputeFlag() {
  return Value(
      "cpu-compute", "fp32|bf16|int8",
      "what inputs of products on the CPU are rounded to, faster and less exact: fp32, "
      "not at all; bf16, beside 16-bit weights; int8, beside codes, which the run must have (fp32)",
      [](Config& config, const std::string& text) {
        for (const CpuCompute compute : {CpuCompute::kFp32, CpuCompute::kBf16, CpuCompute::kInt8}) {
          if (text != CpuComputeName(compute)) continue;
          config.cpu_compute = compute;
          return;
        }
        throw Error(ErrorCode::kFlag, "--cpu-compute: give fp32, bf16 or int8");
      });
}

Flag OffloadDirFlag() {
  return Value("offload-dir", "DIR",
               "folder of the disk tier and of temporary files ($TMPDIR/spillway-UID)",
               &Config::offload_dir);
}

Flag SeedFlag(std::string help) {
  return Value("seed", "N", std::move(help), [](Config& config, const std::string& text) {
    config.seed = static_cast<uint64_t>(ParseInteger("seed", text, 0, INT64_MAX));
  });
}

Flag DeviceFlag() {
  return Value("device", "auto|cpu|cuda:N", "where layers are computed", SetDevice);
}

// The device, and how much a run may take of each tier.
std::vector<Flag> MemoryFlags() {
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
  };
}

// A policy's parts, and what computes.
std::vector<Flag> PolicyFlags() {
  return {
      {"percent", FlagKind::kValue, "Wg Wc Kg Kc Ag Ac",
       "percent of weights, KV and activations on gpu and cpu; the rest is on disk", SetPercent, 6},
      Value("policy", "FILE|auto",
            "a policy file; auto: the best by search where the machine's rates are known",
            SetPolicy),
      Value("machine", "FILE|NAME",
            "a machine file: rates, and the machine that a plan is for; or the name of one that "
            "comes with the program, such as t4",
            [](Config& config, const std::string& text) {
              config.machine = ReadMachine(MachinePath(text));
            }),
      Switch("no-overlap", "serial schedule, for comparison",
             [](Config& config, bool on) { config.overlap = !on; }),
      Switch("no-prefix-sharing", "compute prompts that begin alike apart; the same answers",
             [](Config& config, bool on) { config.shares_beginnings = !on; }),
      Switch("cpu-attention", "the CPU attends to KV that is not on the gpu (as the policy says)",
             &Config::cpu_attention),
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
  };
}

std::vector<Flag> ReportFlags() {
  return {
      Value("report", "FILE", "write a JSON report", &Config::report),
      Value("trace", "FILE", "write a Chrome trace of the run, for Perfetto", &Config::trace),
      SeedFlag("run seed; each row draws from (seed, line number)"),
  };
}

}  // namespace

std::vector<Flag> ModelFlags() {
  return {
      Value(
          "model", "PATH|NAME",
          "Hugging Face folder, store, or a built-in shape (inspect --shapes lists them) for dummy "
          "weights",
          &Config::model),
      Switch("dummy-weights", "seeded random weights of the named shape; no checkpoint is read",
             &Config::dummy_weights),
      Bits("weight-bits",
           "how matrices are held: 8 and 4 in groups of 64 with a minimum and a step each (as the "
           "store is, or in the codes that a checkpoint publishes; 16 for other models)",
           &Config::weight_bits),
      Switch("allow-nonfinite-weights", "load weights that hold NaN or infinity",
             &Config::allow_nonfinite_weights),
  };
}

std::vector<Flag> TokenizerFlags() {
  return {
      Value("tokenizer", "DIR",
            "folder of the tokenizer (the model's own; 'none': prompts are token_ids)",
            &Config::tokenizer),
  };
}

std::vector<Flag> RunFlags() {
  return Joined({InGroup("Memory and device", MemoryFlags()),
                 InGroup("Policy: placement, blocks, threads", PolicyFlags()),
                 InGroup("Report", ReportFlags())});
}

std::vector<Flag> ConvertFlags() {
  return {
      Value("output", "DIR", "the store: a new folder", &Config::output),
      Switch("overwrite", "replace an existing store", &Config::overwrite),
      ThreadsFlag(),
      SeedFlag("seed of dummy weights (0)"),
  };
}

std::vector<Flag> ProfileFlags() {
  return {
      Value("output", "FILE",
            "write the machine file here too, over an earlier one; one is cached anyway",
            &Config::output),
      Switch("quick", "fewer and shorter rounds: 20 to 30 s in place of 90", &Config::quick),
      DeviceFlag(),
      OffloadDirFlag(),
      ThreadsFlag(),
      CpuComputeFlag(),
  };
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

}  // namespace spillway
