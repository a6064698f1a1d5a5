// HostProfile: the rates of this host, measured and kept for later runs, as `profile` does it.
// Thread rule: the main thread.
#pragma once

#include <filesystem>
#include <optional>

#include "spillway/machine.h"
#include "spillway/workload.h"
#include "src/config/config.h"
#include "src/device/device.h"
#include "src/profile/profile.h"
#include "src/report/progress.h"
#include "src/verbs/chain.h"  // Setting

namespace spillway {

struct HostProfile {
  Machine machine;
  MeasuredMachine measured;
};

// Throws: as MeasureMachine.
HostProfile MeasureHost(const Config& config, const Device& device, ProfileLength length,
                        ProgressLine& line);

// Keeps a profile in the cache unless it was disturbed and a better one is there; warns of that.
// Returns the file; empty: not kept. Throws: Error kPath, kIo, kDiskSpace, kSystemLimit.
std::filesystem::path CacheHostProfile(const Config& config, const Machine& machine);

// Least seconds that a job takes on such a device, whatever its rates are: of its arithmetic alone.
double LeastSeconds(const Setting& setting, const Workload& work);

// Makes and keeps a quick profile, and says so, where the rates are not known and the job is worth
// the 20 s. nullopt: it is not, or none could be made; the job runs without.
// Throws: Error kInterrupted.
std::optional<Machine> MakeQuickProfile(const Setting& setting, const Workload& work,
                                        ProgressLine& line);

}  // namespace spillway
