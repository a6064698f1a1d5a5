// A KV policy and its bits as policy files and reports write them. Pure functions; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "spillway/kv_policy.h"

namespace spillway {

// {policy, budget, layer_budgets or head_budgets, num_sinks}; a budget is {kept, heavy, recent},
// where stated, each {frac} or {tokens}.
nlohmann::ordered_json KvPolicyJson(const KvPolicy& kv);

// One number for K and V, or [K, V] where they differ.
nlohmann::ordered_json KvBitsJson(KvBits bits);

}  // namespace spillway
