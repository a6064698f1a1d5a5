// Help that a system installs: the man page, and what bash completes. Both are made from the tables
// of verbs and flags. Plain functions; any thread.
#pragma once

#include <string>

namespace spillway {

// spillway(1) in roff.
std::string ManPage();

// A script that bash sources: verbs, the flags of each, words that a flag chooses from, files.
std::string BashCompletion();

}  // namespace spillway
