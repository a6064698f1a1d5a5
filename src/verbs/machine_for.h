// MachineFor: from the flags and this host to the machine that is planned with.
// Thread rule: the main thread.
#pragma once

#include "spillway/machine.h"
#include "spillway/plan.h"  // KernelNeeds
#include "src/config/config.h"
#include "src/device/device.h"
#include "src/store/open_model.h"

namespace spillway {

// This host's processor and GPU, and 90 % of the memory that is free; no rates, no disk. A GPU's
// cap is what is left of --gpu-memory beside what is in use. Throws: Error kGpuMemory: nothing is.
Machine HostMachine(const Config& config, const Device& device);

// This host and device, with the rates of --machine or else of an earlier `profile`, and the caps
// that the flags or what is free set. For verbs that run nothing, the machine of --machine with the
// caps of the flags.
// Throws: Error kPath, kIo: --offload-dir cannot be used; kFlag: --emulate-gpu beside a machine
// that has a GPU; as HostMachine.
Machine MachineFor(const Config& config, const OpenedModel& model, const Device& device);

// Takes the rates of a profile of this host.
void TakeRates(const Machine& profile, Machine& machine);

// Needs of the kernels of that machine's device: those of a GPU also where it is a file's, and
// this host, or this build, has none.
KernelNeeds NeedsFor(const Machine& machine, const Device& device);

// Throws: Error kMachine: the machine's rates are not known.
void RequireRates(const Machine& machine);

}  // namespace spillway
