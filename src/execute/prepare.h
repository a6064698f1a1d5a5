// Prepare: from the flags to what a run is planned with. Shared by the verbs that run or plan.
// Thread rule: the main thread.
#pragma once

#include <filesystem>

#include "policies/default_policy.h"
#include "spillway/machine.h"
#include "spillway/model.h"
#include "spillway/plan.h"
#include "src/config/config.h"

namespace spillway {

// This host, and the caps that the flags or what is free set.
// Throws: Error kPath, kIo: --offload-dir cannot be used.
Machine ProbeMachine(const Config& config);

// What the CPU's kernels ask for.
KernelNeeds CpuKernelNeeds();

// What the flags state of the policy.
// Throws: Error kFlag: a share on a gpu that there is none of.
GivenPolicy PolicyGivenBy(const Config& config, const Machine& machine);

// A model that is too large even for one row of two tokens is refused before the input is read.
// Throws: what MakePlan throws.
void RefuseWhatCannotFit(const ModelShape& shape, const Machine& machine, const GivenPolicy& given,
                         const KernelNeeds& needs);

// --offload-dir, or $TMPDIR, or /tmp.
std::filesystem::path OffloadFolder(const Config& config);

}  // namespace spillway
