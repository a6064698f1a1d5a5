// PlannedWork: the workload of a verb that runs nothing: --input's lengths, or the flags'.
// Thread rule: the main thread.
#pragma once

#include "spillway/machine.h"
#include "spillway/workload.h"
#include "src/config/config.h"
#include "src/device/device.h"
#include "src/store/open_model.h"

namespace spillway {

// Throws: Error kFlag, kInput, kIo, and what refusing a model that cannot fit throws.
Workload PlannedWork(const Config& config, const OpenedModel& model, const Machine& machine,
                     const Device& device);

}  // namespace spillway
