// The page of a sweep: charts and a table in one HTML file that needs nothing beside it, for light
// and dark backgrounds. Pure function of values; any thread.
#pragma once

#include <string>
#include <vector>

#include "src/sweep/point_store.h"
#include "src/sweep/run_figures.h"

namespace spillway {

// `title` may be empty. Requires: at least one result, and one of `figures` for each.
std::string ResultsPage(const std::string& title, const std::vector<PointResult>& results,
                        const std::vector<RunFigures>& figures);

}  // namespace spillway
