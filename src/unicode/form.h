// Normalisation forms of Unicode 9.0, the reference's version. Plain functions; any thread.
#pragma once

#include <string>
#include <string_view>

namespace spillway {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// Linear but for the stable ordering of a run of marks. Requires: valid UTF-8.
std::string ToForm(UnicodeForm form, std::string_view utf8);

}  // namespace spillway
