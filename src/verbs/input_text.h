// InputText: what is said of an input before it runs, and how long the run will take. Plain
// functions; the main thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "spillway/plan.h"
#include "spillway/prediction.h"
#include "src/config/config.h"
#include "src/requests/scan.h"

namespace spillway {

// Lines, tokens to read and at most to write, the longest row, and what cannot run, by reason: at
// most nine lines. `num_left`: of the requests, which no run has answered.
std::string InputText(const Config& config, const InputScan& scan, int64_t num_left);

// A line on what all prompts begin with, and how much of it the plan holds once for all rows; empty
// where they have nothing in common.
std::string PrefixText(const Workload& work, const Plan& plan);

// A line: "20,000 requests, done about Thu 03:40, 1,480 requests/h, prefill 62 % of the time";
// empty where nothing is predicted.
std::string DoneByText(int64_t num_requests, const std::optional<Prediction>& predicted);

// With --strict. Throws: Error kInput: a line cannot run, for another reason than a surplus key.
void RefuseBadLines(const Config& config, const InputScan& scan);

}  // namespace spillway
