// The pictures of a sweep, from its figures. Pure functions of values; any thread.
#pragma once

#include <optional>
#include <vector>

#include "src/sweep/chart.h"
#include "src/sweep/run_figures.h"

namespace spillway {

// A bar for each point; those that differ in their KV policy alone stand together, otherwise they
// come in their order. A point without figures says why.
BarChart ThroughputChart(const std::vector<RunFigures>& figures);

// For each model and lengths, the fastest run with each KV policy over the fastest with all KV.
// nullopt: no run has anything to be compared with.
std::optional<BarChart> SpeedupChart(const std::vector<RunFigures>& figures);

// Runs that were measured, over what the cost model expected. nullopt: there are none.
std::optional<XyChart> PredictionChart(const std::vector<RunFigures>& figures);

// Decoding under the machine's limits. nullopt: the machine's rates are not known.
std::optional<XyChart> RooflineChart(const std::vector<RunFigures>& figures);

}  // namespace spillway
