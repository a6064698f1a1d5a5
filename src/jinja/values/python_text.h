// Text as Python's str sees it: by code points, with Python's white space and case mapping.
// Requires: valid UTF-8 throughout. Throws: Fault where the budget ends. Plain functions; any
// thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "src/jinja/values/budget.h"

namespace spillway::jinja {

std::size_t NumCodePoints(std::string_view text);

// Parts of a text. Lifetime: the text's.
using Parts = std::vector<std::string_view, CountingAllocator<std::string_view>>;
Parts CodePointTexts(std::string_view text);

// Places of the first match at or behind `from`, and of the last; npos: there is none. The time is
// linear in the text, whatever the two are.
std::size_t FindFirst(std::string_view text, std::string_view part, std::size_t from = 0);
std::size_t FindLast(std::string_view text, std::string_view part);

bool IsPythonSpace(char32_t c);
bool IsAlphabetic(char32_t c);
bool IsDecimal(char32_t c);
bool IsPrintable(char32_t c);

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Capitalize(std::string_view text);
std::string Title(std::string_view text);  // str.title
std::string SwapCase(std::string_view text);
bool IsUpper(std::string_view text);  // with a letter that has case, and none that is lower
bool IsLower(std::string_view text);

enum class Side { kLeft, kRight, kBoth };

// Drops white space, or where `characters` is not null any of its code points.
std::string_view Strip(std::string_view text, const std::string* characters, Side side);

// Python's split: at runs of white space, or at `separator`, at most `max_splits` times (-1: no
// bound). Requires: a separator that is not empty.
Parts SplitSpace(std::string_view text, long max_splits);
Parts SplitAt(std::string_view text, std::string_view separator, long max_splits);
// Splits from the right.
Parts SplitSpaceRight(std::string_view text, long max_splits);
Parts SplitAtRight(std::string_view text, std::string_view separator, long max_splits);
Parts SplitLines(std::string_view text, bool keep_ends);

std::string Replace(std::string_view text, std::string_view from, std::string_view to,
                    long max_count);
std::string Repeat(std::string_view text, long count);

// Escapes & < > ' " as markupsafe does.
std::string EscapeMarkup(std::string_view text);

}  // namespace spillway::jinja
