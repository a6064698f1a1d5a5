// policy.json: a policy as a file, from `search`, `calibrate` or written by hand. Version 1.
// Pure functions but for ReadPolicy; any thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "policies/search/given_policy.h"
#include "spillway/model.h"

namespace spillway {

inline constexpr int kPolicyVersion = 1;

// Keys: version, and of the others those that the file states; what it leaves out is chosen.
//   weight_frac, kv_frac, activation_frac {gpu, cpu, disk} each summing to 1, all three or none,
//   gpu_batch_size, num_gpu_batches, cpu_attention, prefill_chunk, kv_dtype ("fp16", "bf16"),
//   weight_bits and kv_bits (16, 8, 4; kv_bits also [K, V]), sources [text],
//   kv {policy ("full", "h2o", "window", "h2o-flexgen"), budget, layer_budgets [budget] or, with
//   h2o, head_budgets [layer][kv_head], where a number is a share; num_sinks, rolling}.
// A budget is {kept, heavy, recent}, each {"frac": x} of prompt + max new tokens or {"tokens": n};
// heavy and recent where they are set apart.
// Throws: Error kPolicy with the JSON path: no JSON, an unknown or missing key, a wrong type, a
// value out of range, shares that do not sum to 1, a newer version; kPolicy when there is no such
// file; kSystemLimit.
GivenPolicy ReadPolicy(const std::filesystem::path& file);

// Text that ReadPolicy takes; every number comes back as it was. `sources` say where it comes from.
// A model that is held in published codes has no weight_bits there: given, they decode it.
std::string PolicyJson(const Policy& policy, const ModelShape& shape,
                       const std::vector<std::string>& sources = {});

// A file that states a KV policy and its bits only.
std::string PolicyJson(const KvPolicy& kv, KvBits bits, const std::vector<std::string>& sources);

}  // namespace spillway
