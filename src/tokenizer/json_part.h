// Helpers that read one part of a tokenizer.json's chain: {"type": NAME, ...}. Plain functions; any
// thread. All throw Error kTokenizer as JsonNode refuses.
#pragma once

#include <string>
#include <string_view>

#include "src/base/json_node.h"
#include "src/tokenizer/normalizer.h"
#include "src/tokenizer/pre_tokenizer.h"

namespace spillway {

// `what` is the kind of part ("normalizer"), `part` its name.
[[noreturn]] void RefusePart(const JsonNode& in, const char* what, std::string_view part);

// The member "type"; `what` is for messages.
std::string PartType(const JsonNode& part, const char* what);

std::string TextMember(const JsonNode& part, const char* key);

// {"Regex": "..."}, compiled; refuses what Regex does not support, by name.
Regex ReadRegex(const JsonNode& pattern, const char* what);

// {"pattern": {"String": what}, "content": by}; a regular expression there is refused.
ReplaceStep ReadReplace(const JsonNode& part, const char* what);

MetaspaceStep ReadMetaspace(const JsonNode& part);

}  // namespace spillway
