// A file as one text. Plain function; any thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace spillway {

inline constexpr std::size_t kMaxTextBytes = 256 << 20;

// All of `path` ("-": standard input) without a byte order mark. `flag` is named in errors.
// Decompressed where it is gzip or zstd. Throws: Error kInput: cannot be read as OpenInput says, is
// over kMaxTextBytes, damaged, of another form, not UTF-8 or holds a NUL; kIo.
std::string ReadTextFile(const std::filesystem::path& path, std::string_view flag);

}  // namespace spillway
