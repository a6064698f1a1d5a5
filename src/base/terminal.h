// Text for people. Losing it never ends a run: its results are in files. Thread rule: plain
// functions; any thread.
#pragma once

#include <cstdio>
#include <string_view>

namespace spillway {

// Writes `text` and flushes; a closed or full stream swallows it, and so does null.
void PrintTo(std::FILE* stream, std::string_view text) noexcept;

// "spillway: warning: TEXT" as a line on standard error.
void PrintWarning(std::string_view text) noexcept;

// Puts /dev/null where the standard descriptors are closed, so that no file of the run takes their
// numbers and receives text that is meant for a terminal. Each is opened for the other direction
// (as glibc does it): completions that go to a closed standard output must fail, not vanish.
void FillStandardDescriptors() noexcept;

}  // namespace spillway
