// Template sources: the chat templates that lie in a tokenizer's folder. Plain functions; any
// thread.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "src/jinja/values/value.h"

namespace spillway {

// Name -> text; the one that is taken unless another is asked for is "default".
using TemplateSources = std::map<std::string, std::string>;

// chat_template.jinja and additional_chat_templates/*.jinja, or where there are none of these the
// "chat_template" of tokenizer_config.json, one text or a list of named ones.
// Throws: Error kTokenizer for a malformed file, kModelMissing for one that cannot be read.
TemplateSources ReadTemplateSources(const std::filesystem::path& folder);

// The special tokens by name, as templates see them: bos_token, eos_token, ...
// Throws: Error kTokenizer.
jinja::DictPtr ReadTemplateTokens(const std::filesystem::path& folder);

}  // namespace spillway
