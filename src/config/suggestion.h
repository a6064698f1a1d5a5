// Suggestion of what a misspelt word may have meant. Pure function; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spillway {

// "; did you mean --input?" when one of the known words begins with this one, has all of its parts
// (max-new-tokens for max-tokens) or is close enough for a slip; else nothing.
std::string Suggestion(std::string_view word, const std::vector<std::string>& known,
                       std::string_view dashes);

}  // namespace spillway
