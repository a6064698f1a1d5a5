// Keys of a request that OpenAI or vLLM document and that do nothing here: at their neutral value
// they are passed over, at another they would change the answer and are faults of the line.
// Plain functions; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "src/requests/line_fault.h"

namespace spillway {

// Forms of a body: of /v1/completions and of /v1/chat/completions.
enum class BodyForm { kCompletion, kChat };

bool IsDocumentedKey(std::string_view key, BodyForm form);

// "unsupported_value" for a value of a documented key that is not neutral. Null always is.
MaybeFault CheckDocumentedKey(std::string_view key, const nlohmann::json& value, BodyForm form);

// Documented keys with names so long and made of parts that no other word comes near them by
// chance.
std::vector<std::string_view> DistinctDocumentedKeys(BodyForm form);

}  // namespace spillway
