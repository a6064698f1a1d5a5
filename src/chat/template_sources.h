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
// "chat_template" of tokenizer_config.json, one text or a list of named ones; without that the one
// of chat_template.json, as processors were saved.
// Throws: Error kTokenizer for a malformed file, kModelMissing for one that cannot be read.
TemplateSources ReadTemplateSources(const std::filesystem::path& folder);

// The templates of a file that is given: its text, or where that is JSON the "chat_template" in it,
// or the JSON text of a file that ends in ".json".
// Throws: as ReadTemplateSources; Error kTokenizer for JSON without a template.
TemplateSources ReadGivenTemplates(const std::filesystem::path& file);

// The special tokens by name, as templates see them: bos_token, eos_token, ...
// Throws: Error kTokenizer.
jinja::DictPtr ReadTemplateTokens(const std::filesystem::path& folder);

}  // namespace spillway
