// Keys of a completion's body that say how to sample. Plain functions; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "src/requests/documented_keys.h"  // BodyForm
#include "src/requests/line_fault.h"
#include "src/sampling/request.h"

namespace spillway {

// Tells whether ReadSamplingKeys reads `key`.
bool IsSamplingKey(std::string_view key, BodyForm form);

// The keys of both forms.
std::span<const std::string_view> SamplingKeyNames();

// Changes what `body` states in `sampling`; null states nothing, except that "logprobs": null means
// none. A chat's logprobs are true or false, beside top_logprobs; others may be false, for none.
// Integers may be written 4.0. Empty stop strings stop nothing.
// Faults: "invalid_value" for a wrong type or range; CheckDocumentedKey's.
// Requires: an object. Keys that are neither sampling keys nor documented ones are passed over.
MaybeFault ReadSamplingKeys(const nlohmann::json& body, BodyForm form, Sampling& sampling);

}  // namespace spillway
