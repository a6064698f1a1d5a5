// Exit statuses beside those of errors (ExitStatus in spillway/error.h).
#pragma once

namespace spillway {

// Status of a run that finished, some requests of which carry errors.
inline constexpr int kSomeLinesCarryErrors = 21;

}  // namespace spillway
