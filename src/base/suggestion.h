// Suggestion of what a misspelt word may have meant. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

// Letters to insert, delete or replace to make one word of the other.
int64_t EditDistance(std::string_view a, std::string_view b);

// "; did you mean --input?" when one of the known words begins with this one, has all of its parts
// (max-new-tokens for max-tokens) or is close enough for a slip; else nothing.
std::string Suggestion(std::string_view word, const std::vector<std::string>& known,
                       std::string_view dashes);

// The known words that are nearest to this one by edits, at most so many, the nearest first.
std::vector<std::string> NearestWords(std::string_view word, std::vector<std::string> known,
                                      std::size_t most);

}  // namespace spillway
