// A KV policy as policy files and reports write it. Pure function; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "spillway/kv_policy.h"

namespace spillway {

// {policy, budget or layer_budgets, num_sinks}; a budget is {kept, heavy, recent}, where stated,
// each {frac} or {tokens}.
nlohmann::ordered_json KvPolicyJson(const KvPolicy& kv);

}  // namespace spillway
