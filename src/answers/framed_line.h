// A line of text that says of itself whether it is whole: 16 digits, which are the XXH3 of the
// rest, a space, and the rest. What journals are made of.
// Plain functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace spillway {

// A framed line of `text`, with its newline. Requires: no newline in `text`.
std::string FramedLine(std::string_view text);

// The text that FramedLine was given; nullopt where `line` (without its newline) is not whole.
std::optional<std::string_view> FramedText(std::string_view line);

// Whether a file of this content may begin with a framed line of text that begins with `text`; that
// line may be torn.
bool BeginsFramed(std::string_view content, std::string_view text);

}  // namespace spillway
