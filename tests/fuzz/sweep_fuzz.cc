// A sweep's grid.
#include <optional>

#include "src/sweep/grid.h"
#include "tests/fuzz/fuzz_case.h"

namespace spillway::fuzz {

void Take(std::string_view bytes) { ParseGrid("grid.toml", bytes, std::nullopt); }

}  // namespace spillway::fuzz
