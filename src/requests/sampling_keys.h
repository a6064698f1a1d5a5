// The keys of a completion's body that say how to sample, and OpenAI's other keys, taken at their
// neutral value only. Plain functions; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "src/requests/line_fault.h"
#include "src/sampling/request.h"

namespace spillway {

// Forms of a body: of /v1/completions and of /v1/chat/completions.
enum class BodyForm { kCompletion, kChat };

// Whether ReadSamplingKeys knows `key`.
bool IsSamplingKey(std::string_view key, BodyForm form);

// Changes what `body` states in `sampling`; null states nothing, except that "logprobs": null means
// none. A chat's logprobs are true or false, beside top_logprobs.
// Faults: "invalid_value" for a wrong type or range, "unsupported_value" for an OpenAI key that is
// not neutral.
// Requires: an object. Keys that are no sampling keys are passed over.
MaybeFault ReadSamplingKeys(const nlohmann::json& body, BodyForm form, Sampling& sampling);

}  // namespace spillway
