// Profile: measures this machine's links and units, for machine.json. Thread rule: the main thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "spillway/machine.h"
#include "src/base/isa.h"
#include "src/device/gpu_probe.h"
#include "src/io/disk_folder.h"
#include "src/profile/measurement.h"

namespace spillway {

enum class ProfileLength { kFull, kQuick };

struct ProfileOptions {
  int num_threads = 1;
  kernels::Isa isa = kernels::Isa::kPortable;
  ProfileLength length = ProfileLength::kFull;
  std::function<void(const std::string&)> note;  // hears what is going on
  GpuProbe* gpu = nullptr;                       // null: this machine has none
};

struct MeasuredMachine {
  MachineRates rates;  // without a GPU cpu_to_gpu and back are those of an emulated one
  std::vector<MeasuredRate> lines;
  std::string disk_way;          // how the disk was reached
  double processor_share = 1.0;  // of its time that the compute threads got; less: others ran
};

// Reason why these rates may be too low: others took the processor, or a rate's rounds lie far
// apart. Empty where nothing speaks against them.
std::string DisturbanceOf(const MeasuredMachine& measured);

// Takes about 90 s, or 20 s with kQuick, whatever the rates are, and a third more with a GPU; 1.7
// GiB of memory and 1 GiB (256 MiB) of disk.
// Throws: Error kCpuMemory, kDiskSpace, kPath, kIo, kSystemLimit, kInterrupted, kGpu.
MeasuredMachine MeasureMachine(const DiskFolder& folder, const ProfileOptions& options);

}  // namespace spillway
