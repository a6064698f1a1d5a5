// Machine: what there is to plan with: caps, and how fast its links and units are.
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/dtype.h"
#include "spillway/tier.h"

namespace spillway {

// Rate of a device in matrix products with this many rows: weights in its memory, fp32
// accumulation.
struct MatmulRate {
  int64_t rows = 0;
  double flops_per_s = 0.0;         // of 4096 x 4096 weights
  double narrow_flops_per_s = 0.0;  // of 1024 x 1024: inputs and outputs weigh more; 0: not known

  bool operator==(const MatmulRate&) const = default;
};

// Measured (profile) or taken from a data sheet. Zero where the machine has no such device.
struct DeviceRates {
  double memory_bytes_per_s = 0.0;             // read
  std::vector<MatmulRate> matmul;              // of fp16 weights, ascending rows
  double prefill_attention_flops_per_s = 0.0;  // 4 * head_dim of each pair attended to
  double decode_attention_bytes_per_s = 0.0;   // of K and V
  double launch_s = 0.0;  // what computing one layer for one batch costs beyond its arithmetic
  // Zero, or none, where they are not known: the cost model then makes do with the rates above.
  std::map<DType, std::vector<MatmulRate>> matmul_codes;  // by type, of 4096 x 4096 alone
  double norm_elements_per_s = 0.0;                       // layer norms of fp32 states
  double logits_per_s = 0.0;  // looked through by one thread, for a greedy token
  // Prefill with heads half as wide: more softmax; with prompts of 128 tokens: more tokens stored.
  double narrow_attention_flops_per_s = 0.0;
  double short_attention_flops_per_s = 0.0;
  double first_touch_bytes_per_s = 0.0;       // of memory that the system has yet to find
  double evicting_prefill_flops_per_s = 0.0;  // with the tokens' scores and the choice of them
  double evicting_decode_bytes_per_s = 0.0;   // of K and V

  bool operator==(const DeviceRates&) const = default;
};

// Rates that a link and computes keep while both are at work, as shares of what each gives
// alone. 1 where they have nothing in common.
struct SharedPace {
  double link_frac = 1.0;
  double compute_frac = 1.0;

  bool operator==(const SharedPace&) const = default;
};

struct MachineRates {
  PerLink<double> link_bytes_per_s;
  // Reads of the file that a run has its weights in, where they were measured; 0: as of the disk.
  double store_bytes_per_s = 0.0;
  PerLink<SharedPace> beside_compute;  // of the CPU's computes
  // Rate that reads and writes of the disk keep while both go on, as a share of what each has
  // alone: 1 where they have nothing in common, 0.5 where they take turns.
  double disk_both_frac = 1.0;
  DeviceRates gpu;
  DeviceRates cpu;
};

// FlexGen's effective rates (docs/algorithms.md, "Published numbers"): what its own loop reaches,
// with the copies and waits that are its own. Only for `simulate --as-flexgen`.
struct FlexGenRates {
  double cpu_to_gpu_bytes_per_s = 0.0;
  double gpu_to_cpu_kv_bytes_per_s = 0.0;
  double gpu_to_cpu_hidden_bytes_per_s = 0.0;
  double disk_read_bytes_per_s = 0.0;
  double disk_write_bytes_per_s = 0.0;
  double prefill_matmul_flops_per_s = 0.0;
  double decode_matmul_flops_per_s = 0.0;
  double prefill_attention_flops_per_s = 0.0;
  double decode_attention_flops_per_s = 0.0;
  double cpu_attention_flops_per_s = 0.0;  // decode
  double gpu_memory_bytes_per_s = 0.0;     // read; bounds small batches
  double launch_s = 0.0;                   // of one layer for one batch
};

struct Machine {
  std::string name;              // the processor, and the GPU when there is one
  std::string isa;               // what the CPU kernels use (src/base/isa.h): "avx512"
  int num_threads = 1;           // compute threads
  Tier device = Tier::kCpu;      // where layers are computed; kGpu also when it is emulated
  bool gpu_is_emulated = false;  // the gpu tier is CPU memory, and the CPU computes
  PerTier<int64_t> cap_bytes;    // hard caps of this run
  // Remedies where the GPU's cap is too small: these flags, and how much of theirs is in use before
  // the run.
  std::string_view gpu_cap_flags = "--gpu-memory";
  int64_t gpu_used_bytes = 0;
  bool disk_cap_is_free_space = false;  // no flag makes the disk's cap larger
  MachineRates rates;                   // zero: not known
  std::optional<FlexGenRates> flexgen;
  std::string date;       // of the rates, as a file says it; empty: not from a file
  std::string disturbed;  // why the rates may be too low, where other programs ran beside a profile
  std::vector<std::string> sources;  // where they come from, as a file says it

  // One that computes by itself.
  bool has_gpu() const { return device == Tier::kGpu && !gpu_is_emulated; }
};

}  // namespace spillway
