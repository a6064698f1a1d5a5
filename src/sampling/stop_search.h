// FindStop: the first stop string in a text that grows token by token. Bytes, not characters: a
// token may end in the middle of a character. Plain function; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace spillway {

// Beginning of the earliest stop string that ends after the first `old_bytes` bytes of `text`: what
// ended before was searched already, or was not to be obeyed yet. Looks at the new bytes and one
// stop string's length before them.
std::optional<std::size_t> FindStop(std::string_view text, std::size_t old_bytes,
                                    std::span<const std::string> stops);

}  // namespace spillway
