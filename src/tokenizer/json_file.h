// Reads the JSON files of a tokenizer, which may come from anyone: bounded size and depth.
// Plain functions; any thread.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/json_node.h"

namespace spillway {

inline constexpr std::string_view kTokenizerRemedy =
    "take the file from the model's own folder again";

// Throws: Error kTokenizer with "<file name>: <what>; <what to do>". `what` holds file-supplied
// text through Printable() only.
[[noreturn]] void RefuseTokenizer(const std::filesystem::path& file, const std::string& what,
                                  std::string_view remedy = kTokenizerRemedy);

// The bytes of a regular file. Throws: Error kModelMissing when it is not there or cannot be read,
// kTokenizer when it is larger than 256 MiB or empty.
std::string ReadTokenizerFile(const std::filesystem::path& file);

// Throws: as ReadTokenizerFile; Error kTokenizer for text that is no JSON object, nests deeper than
// 64, or names a key of an object twice.
nlohmann::json ReadJsonObject(const std::filesystem::path& file);

// A file of settings, by ParsePythonJson; nullopt when there is none. Throws: as ReadJsonObject,
// but takes a key twice.
std::optional<nlohmann::json> ReadOptionalJsonObject(const std::filesystem::path& file);

// How the nodes of a tokenizer's file refuse: as RefuseTokenizer.
JsonOrigin TokenizerOrigin(const std::filesystem::path& file);

// A token id: an integer in 0 .. 2^31 - 2. Throws: as `place` refuses; `token` names the entry in
// the message.
int32_t JsonTokenId(const nlohmann::json& value, std::string_view token, const JsonNode& place);

}  // namespace spillway
