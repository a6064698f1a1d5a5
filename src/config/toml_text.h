// Reading of TOML files. Plain functions; any thread.
#pragma once

#include <toml++/toml.h>

#include <optional>
#include <string>
#include <string_view>

namespace spillway {

// The whole of a regular file of at most 1 MiB. Throws: Error kFlag naming `flag` and the file.
std::string ReadTomlText(const std::string& path, std::string_view flag);

// The document. Throws: toml::parse_error, also for characters beyond ASCII outside of comments and
// quotes, which no TOML has and the library takes for impossible.
toml::table ParseToml(std::string_view text);

// A string, number or boolean as a command line states it; nullopt: a list, table or date.
std::optional<std::string> TomlScalar(const toml::node& node);

}  // namespace spillway
