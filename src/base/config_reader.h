// How the keys of a config.json, and those of a store's shape, are read: a key that is null counts
// as absent, as transformers has it, and every failure names the key and what it may be. Plain
// functions; any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/json_node.h"

namespace spillway {

// An origin whose nodes throw Error kModelInconsistent for what is absent, of a wrong type or out
// of range.
JsonOrigin ConfigOrigin(std::string name);

// Lifetime: as JsonNode. Throws: Error kModelMalformed when `document` is not an object.
JsonNode ConfigRoot(const nlohmann::json& document, const JsonOrigin& origin);

// The distinct ones of a number or a list of numbers, in order. Throws: as Integer().
std::vector<int64_t> DistinctIntegers(const JsonNode& node, IntegerRange range);

}  // namespace spillway
