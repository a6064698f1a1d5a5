// machine.json: a Machine as a file, from `profile` or a data sheet. Version 1.
// Pure functions but for ReadMachine; any thread.
#pragma once

#include <filesystem>
#include <string>

#include "spillway/machine.h"

namespace spillway {

inline constexpr int kMachineVersion = 1;

// Keys, all rates in bytes, operations or seconds and more than zero (launch_s may be zero):
//   version, name, device ("gpu", "cpu"), cap_bytes {gpu, cpu, disk},
//   link_bytes_per_s {disk_read, disk_write, cpu_to_gpu, gpu_to_cpu},
//   gpu, cpu {memory_bytes_per_s, matmul [{rows, flops_per_s}] with rising rows,
//             prefill_attention_flops_per_s, decode_attention_bytes_per_s, launch_s}
//   and, where there is something to say: isa, threads, date, disturbed, sources [text],
//   flexgen {...}, beside_compute {LINK: {link_frac, compute_frac}}, disk_both_frac, and in gpu and
//   cpu first_touch_bytes_per_s, norm_elements_per_s, logits_per_s, narrow_attention_flops_per_s,
//   short_attention_flops_per_s, evicting_prefill_flops_per_s, evicting_decode_bytes_per_s,
//   matmul_8bit, matmul_4bit, matmul_mxfp4, matmul_fp8, matmul_q8_0, matmul_q4_0, matmul_q4_1,
//   matmul_q4_k, matmul_q6_k (as matmul), and narrow_flops_per_s in matmul.
// Without a GPU, `gpu` and its links may be left out; they are zero then.
// Throws: Error kMachine with the JSON path: no JSON, an unknown or missing key, a wrong type, a
// value out of range, a newer version; kMachine when there is no such file; kSystemLimit.
Machine ReadMachine(const std::filesystem::path& file);

// Text that ReadMachine takes; every number comes back as it was. Requires: values that it takes.
std::string MachineJson(const Machine& machine);

}  // namespace spillway
