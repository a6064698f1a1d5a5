#include "src/verbs/host_profile.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "policies/cost/cost_rates.h"  // KnowsRates
#include "spillway/error.h"
#include "src/base/host.h"
#include "src/base/isa.h"
#include "src/base/terminal.h"
#include "src/io/disk_folder.h"
#include "src/profile/profile_cache.h"
#include "src/verbs/machine_for.h"

namespace spillway {
namespace {

// Arithmetic that a thread, and a GPU, do at most: more than was measured of any
// (docs/measurements.md).
constexpr double kMostThreadFlops = 1e12;
constexpr double kMostGpuFlops = 1e15;

// A job is worth a quick profile, of 20 s, from here on.
constexpr double kWorthSeconds = 300.0;

constexpr std::string_view kAnnouncement =
    "the machine's rates are not known: a quick profile is made first, of 20 s or so (--no-profile "
    "leaves it out)\n";

// Memory that a profile takes.
constexpr int64_t kProfileBytes = int64_t{2} << 30;

constexpr std::string_view kNoMemoryForIt =
    "the machine's rates are not known, and a profile takes 2 GiB of memory, which --cpu-memory or "
    "other programs do not leave: what is predicted is of built-in rates\n";

std::vector<std::string> Sources(ProfileLength length, const MeasuredMachine& measured) {
  const bool has_gpu = !measured.rates.gpu.matmul.empty();
  return {fmt::format("measured on this machine by spillway profile{}; disk: {}",
                      length == ProfileLength::kQuick ? " --quick" : "", measured.disk_way),
          fmt::format("cpu_to_gpu and gpu_to_cpu are {}; rates are medians of the rounds",
                      has_gpu ? "copies of pinned memory, in pieces of 2 MiB"
                              : "copies from memory to memory by one thread, as with "
                                "--emulate-gpu")};
}

// Replaces the advice of its errors, which is about caps of memory and of no use here.
std::unique_ptr<GpuProbe> ProbeOf(const Device& device) {
  try {
    return device.MakeProbe();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kGpuMemory) throw;
    throw Error(ErrorCode::kGpuMemory,
                "profile needs about 2 GiB of GPU memory in one piece; close other programs on the "
                "GPU, or give --device cpu");
  }
}

// A disturbed profile never takes the place of a better one, and says what it is.
bool TakesThePlace(const Machine& machine, const ProfileKey& key) {
  if (machine.disturbed.empty()) return true;
  const bool keeps = HasQuietProfile(key);
  PrintWarning(fmt::format(
      "this profile was disturbed ({}); {}", Printable(machine.disturbed, 100),
      keeps ? "the one from before stays in use" : "it is used until a better one is made"));
  return !keeps;
}

double Tokens(const Workload& work) {
  double tokens = 0.0;
  for (const RequestShape& row : work.sample) tokens += static_cast<double>(row.slots());
  return tokens * work.rows_per_sampled();
}

bool IsWorthAProfile(const Setting& setting, const Workload& work) {
  const Config& config = setting.config;
  if (!config.makes_profile || config.machine || KnowsRates(setting.machine)) return false;
  return LeastSeconds(setting, work) >= kWorthSeconds;
}

}  // namespace

HostProfile MeasureHost(const Config& config, const Device& device, ProfileLength length,
                        ProgressLine& line) {
  const DiskFolder folder(OffloadDisk(config));
  HostProfile profile;
  Machine& machine = profile.machine = HostMachine(config, device);
  machine.cap_bytes[Tier::kDisk] = folder.FreeBytes() / 10 * 9;
  const std::unique_ptr<GpuProbe> gpu = ProbeOf(device);
  profile.measured =
      MeasureMachine(folder, {machine.num_threads, kernels::BestIsa(config.cpu_compute), length,
                              [&line](const std::string& text) { line.Note(text); }, gpu.get()});
  machine.rates = profile.measured.rates;
  machine.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  machine.disturbed = DisturbanceOf(profile.measured);
  machine.sources = Sources(length, profile.measured);
  return profile;
}

std::filesystem::path CacheHostProfile(const Config& config, const Machine& machine) {
  const ProfileKey key = MakeProfileKey(machine, OffloadDisk(config));
  std::filesystem::path path = CachedProfilePath(key);
  if (!TakesThePlace(machine, key)) return {};
  if (path.empty())
    throw Error(ErrorCode::kPath,
                "there is no folder for it; set XDG_CACHE_HOME or HOME, or give --output");
  CacheProfile(path, machine);
  return path;
}

double LeastSeconds(const Setting& setting, const Workload& work) {
  const double flops = 2.0 * static_cast<double>(NumParameters(setting.model)) * Tokens(work);
  const Machine& machine = setting.machine;
  const bool on_gpu = machine.has_gpu() && !machine.gpu_is_emulated;
  return flops / (on_gpu ? kMostGpuFlops : kMostThreadFlops * machine.num_threads);
}

std::optional<Machine> MakeQuickProfile(const Setting& setting, const Workload& work,
                                        ProgressLine& line) {
  if (!IsWorthAProfile(setting, work)) return std::nullopt;
  const Config& config = setting.config;
  const bool fits = setting.machine.cap_bytes[Tier::kCpu] >= kProfileBytes;
  if (config.verbosity != Verbosity::kQuiet) PrintTo(stderr, fits ? kAnnouncement : kNoMemoryForIt);
  if (!fits) return std::nullopt;
  std::optional<Machine> machine;
  try {
    machine = MeasureHost(config, setting.device, ProfileLength::kQuick, line).machine;
    ForgetPeakResidentBytes();
    CacheHostProfile(config, *machine);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInterrupted) throw;
    line.Warn(fmt::format("the profile was not {}: {}", machine ? "kept" : "made", error.what()));
  }
  line.Clear();
  return machine;
}

}  // namespace spillway
