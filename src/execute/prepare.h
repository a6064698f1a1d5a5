// Prepare: from the flags to what a run is planned with. Shared by the verbs that run or plan.
// Thread rule: the main thread.
#pragma once

#include <filesystem>

#include "spillway/machine.h"
#include "spillway/model.h"
#include "spillway/plan.h"
#include "src/config/config.h"
#include "src/model/open_model.h"

namespace spillway {

// This host's processor, and 90 % of the memory that is free; no rates, no disk.
Machine HostMachine(const Config& config);

// This host, what an earlier `profile` measured of it, and the caps that the flags or what is free
// set. Throws: Error kPath, kIo: --offload-dir cannot be used.
Machine ProbeMachine(const Config& config, const OpenedModel& model);

// This host with the rates of --machine; for verbs that run nothing, the machine of that file with
// the caps of the flags.
// Throws: as ProbeMachine.
Machine MachineToPlanFor(const Config& config, const OpenedModel& model);

// The plan of the policy that flags and files state, and that is chosen where they are silent.
// Throws: Error kFlag: a share on a gpu that there is none of; what MakePlan throws.
Plan PlanFor(const Config& config, const ModelShape& shape, const Machine& machine,
             const Workload& work);

// A model that is too large even for one row of two tokens is refused before the input is read.
// Throws: what PlanFor throws.
void RefuseWhatCannotFit(const Config& config, const ModelShape& shape, const Machine& machine);

// --offload-dir, or $TMPDIR, or /tmp.
std::filesystem::path OffloadFolder(const Config& config);

}  // namespace spillway
