// ShellWord: a word as one types it into a shell. Pure function; any thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace spillway {

// "my results" -> "'my results'"; a word of plain characters stays as it is.
std::string ShellWord(std::string_view word);

// The same of a file's name: one that begins with a dash is no flag then.
std::string ShellPath(const std::filesystem::path& path);

}  // namespace spillway
