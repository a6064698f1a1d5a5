// The table of a sweep as CSV (RFC 4180, UTF-8): a header line, one line for each point. Pure
// function of values; any thread.
#pragma once

#include <string>
#include <vector>

#include "src/sweep/point_store.h"
#include "src/sweep/run_figures.h"

namespace spillway {

// Columns: place and state of the point; each of `flags`; what its report says; what follows from
// that. A value that is not there is an empty field. Requires: one of `figures` for each result.
std::string ResultsCsv(const std::vector<PointResult>& results,
                       const std::vector<RunFigures>& figures,
                       const std::vector<std::string>& flags);

}  // namespace spillway
