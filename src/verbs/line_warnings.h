// Warnings of what the lines of an input have that the run does not take as it stands. Plain
// function; the main thread.
#pragma once

#include <string>

#include "src/requests/scan.h"

namespace spillway {

// One warning for each key that is passed over, and one for contexts that are cut. `input` is the
// file's name.
void WarnOfLines(const std::string& input, const ReaderOptions& options, const InputScan& scan);

}  // namespace spillway
