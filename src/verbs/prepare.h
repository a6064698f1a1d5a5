// Prepare: from the flags to what a run is planned with. Shared by the verbs that run or plan.
// Thread rule: the main thread.
#pragma once

#include <filesystem>

#include "spillway/machine.h"
#include "spillway/model.h"
#include "spillway/plan.h"
#include "src/config/config.h"
#include "src/device/device.h"
#include "src/store/open_model.h"

namespace spillway {

// This host's processor and GPU, and 90 % of the memory that is free; no rates, no disk. A GPU's
// cap is what is left of --gpu-memory beside what is in use. Throws: Error kGpuMemory: nothing is.
Machine HostMachine(const Config& config, const Device& device);

// This host and device, what an earlier `profile` measured of them, and the caps that the flags or
// what is free set. Throws: Error kPath, kIo: --offload-dir cannot be used; as HostMachine.
Machine ProbeMachine(const Config& config, const OpenedModel& model, const Device& device);

// What the kernels of that machine's device need: those of a GPU also where it is a file's, and
// this host, or this build, has none.
KernelNeeds NeedsFor(const Machine& machine, const Device& device);

// This host with the rates of --machine; for verbs that run nothing, the machine of that file with
// the caps of the flags.
// Throws: as ProbeMachine.
Machine MachineToPlanFor(const Config& config, const OpenedModel& model, const Device& device);

// Throws: Error kMachine: the machine's rates are not known.
void RequireRates(const Machine& machine);

// The plan of the policy that flags and files state, and that is chosen where they are silent.
// Throws: Error kFlag: a share on a gpu that there is none of; what MakePlan and
// RefuseWhatGpuLacks throw.
Plan PlanFor(const Config& config, const Model& model, const Machine& machine, const Workload& work,
             const Device& device);

// A model that is too large even for one row of two tokens is refused before the input is read.
// Throws: what PlanFor throws.
void RefuseWhatCannotFit(const Config& config, const Model& model, const Machine& machine,
                         const Device& device);

}  // namespace spillway
