// Recognises what a file is when it is not the weights that its name promises. Pure functions; any
// thread.
#pragma once

#include <string>
#include <string_view>

#include "src/checkpoint/model_file.h"

namespace spillway {

// Names the kind of file that begins with `start`, and what to do about it; empty when it is
// nothing known.
std::string_view ForeignKind(std::string_view start);

// The sentence for a file that is not `expected`, say "a safetensors file".
std::string NotExpectedKind(const ModelFile& file, std::string_view expected);

}  // namespace spillway
