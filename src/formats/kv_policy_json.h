// A KV policy and its bits as policy files and reports write and read them. Pure functions; any
// thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "spillway/kv_policy.h"
#include "src/base/json_node.h"

namespace spillway {

// {policy, budget, layer_budgets or head_budgets, num_sinks, rolling}; a budget is {kept, heavy,
// recent}, where stated, each {frac} or {tokens}.
nlohmann::ordered_json KvPolicyJson(const KvPolicy& kv);

// One number for K and V, or [K, V] where they differ.
nlohmann::ordered_json KvBitsJson(KvBits bits);

// Read what those above write. Throws: as JsonNode.
KvPolicy ReadKvPolicy(const JsonNode& node);
KvBits ReadKvBits(const JsonNode& node);

// 16, 8 or 4. Throws: as JsonNode.
int ReadBits(const JsonNode& node);

}  // namespace spillway
