// Text for people. Losing it never ends a run, whose results are in files; a verb that does nothing
// but print asks whether it was lost. Thread rule: plain functions; any thread.
#pragma once

#include <cstdio>
#include <string_view>

namespace spillway {

// Writes `text` and flushes; a closed or full stream swallows it, and so does null. Whatever in it
// would move a terminal's cursor or turn its writing is shown escaped, new lines apart: names of
// files and models come from anywhere.
void PrintTo(std::FILE* stream, std::string_view text) noexcept;

// Puts `text` in the place of the terminal's last line, without going to the next.
void RedrawLine(std::FILE* stream, std::string_view text) noexcept;

// Error (an errno) with which a text of PrintTo for standard output was lost; 0: none was. A reader
// that has gone away (EPIPE) has all it wanted.
int LostOutputError() noexcept;

// "spillway: warning: TEXT" as a line on standard error.
void PrintWarning(std::string_view text) noexcept;

// Puts /dev/null where the standard descriptors are closed, so that no file of the run takes their
// numbers and receives text that is meant for a terminal. Each is opened for the other direction
// (as glibc does it): completions that go to a closed standard output must fail, not vanish.
void FillStandardDescriptors() noexcept;

}  // namespace spillway
