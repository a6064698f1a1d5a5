// The keys of a completion's body that say how to sample, and OpenAI's other keys, taken at their
// neutral value only. Plain functions; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "src/requests/line_fault.h"
#include "src/sampling/request.h"

namespace spillway {

// Whether ReadSamplingKeys knows `key`.
bool IsSamplingKey(std::string_view key);

// Changes what `body` states in `sampling`; null states nothing, except that "logprobs": null means
// none.
// Faults: "invalid_value" for a wrong type or range, "unsupported_value" for an OpenAI key that is
// not neutral.
// Requires: an object. Keys that are no sampling keys are passed over.
MaybeFault ReadSamplingKeys(const nlohmann::json& body, Sampling& sampling);

}  // namespace spillway
