// CalibrationReport: the settings of all KV heads that `calibrate --report` measured. Pure
// functions but for the reading; any thread.
#pragma once

#include <filesystem>
#include <vector>

#include "policies/search/calibrated_kv.h"

namespace spillway {

// In the file's order; at least one.
// Throws: Error kPolicy with the JSON path: no such report, or one of budgets per layer.
std::vector<CalibratedKv> ReadCalibration(const std::filesystem::path& file);

}  // namespace spillway
