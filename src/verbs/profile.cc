#include "src/verbs/profile.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "spillway/error.h"
#include "src/base/clock.h"
#include "src/base/isa.h"
#include "src/base/report_file.h"
#include "src/base/terminal.h"
#include "src/formats/machine_file.h"
#include "src/profile/profile.h"
#include "src/profile/profile_cache.h"
#include "src/report/progress.h"
#include "src/verbs/machine_for.h"
#include "src/verbs/open_device.h"

namespace spillway {
namespace {

std::string Table(const MeasuredMachine& measured, const Machine& machine, double seconds) {
  std::string text = fmt::format("  {:<20}{}, {} threads, {}\n", "machine", machine.name,
                                 machine.num_threads, machine.isa);
  text += fmt::format("  {:<20}{}\n", "disk", measured.disk_way);
  for (const MeasuredRate& line : measured.lines) {
    text += fmt::format("  {:<20}{:>9.2f} {}", line.name, line.value, line.unit);
    if (line.spread > 0.0)
      text += fmt::format("; the best round {:.1f} % more", 100.0 * line.spread);
    text += '\n';
  }
  if (!machine.disturbed.empty()) {
    text +=
        fmt::format("  {:<20}{}; run it again when it is quiet\n", "disturbed", machine.disturbed);
  }
  return text + fmt::format("  {:<20}{:.0f} s\n", "measured in", seconds);
}

std::vector<std::string> Sources(const Config& config, const MeasuredMachine& measured) {
  const bool has_gpu = !measured.rates.gpu.matmul.empty();
  return {fmt::format("measured on this machine by spillway profile{}; disk: {}",
                      config.quick ? " --quick" : "", measured.disk_way),
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

// The cache is a copy: where a file was asked for, its loss is worth a line and no more.
std::string Cache(const Config& config, const Machine& machine) {
  const ProfileKey key = MakeProfileKey(machine, OffloadDisk(config));
  const auto path = CachedProfilePath(key);
  if (!TakesThePlace(machine, key)) return "";
  try {
    if (path.empty())
      throw Error(ErrorCode::kPath,
                  "there is no folder for it; set XDG_CACHE_HOME or HOME, or give --output");
    CacheProfile(path, machine);
  } catch (const Error& error) {
    if (config.output.empty()) throw;
    PrintWarning(fmt::format("not cached: {}", error.what()));
    return "";
  }
  return fmt::format("  {:<20}{}, used by later runs\n", "cached", Printable(path.string(), 200));
}

}  // namespace

int RunProfile(const Config& config) {
  const double begin_s = NowSeconds();
  const ReportFile output("--output", config.output, {});
  const DiskFolder folder(OffloadDisk(config));
  const std::unique_ptr<Device> device = OpenDevice(config);
  Machine machine = HostMachine(config, *device);
  machine.cap_bytes[Tier::kDisk] = folder.FreeBytes() / 10 * 9;
  ProgressLine line(ProgressStreamOf(config));
  const std::unique_ptr<GpuProbe> gpu = ProbeOf(*device);
  const MeasuredMachine measured =
      MeasureMachine(folder, {machine.num_threads, kernels::BestIsa(config.cpu_compute),
                              config.quick ? ProfileLength::kQuick : ProfileLength::kFull,
                              [&line](const std::string& text) { line.Note(text); }, gpu.get()});
  line.Clear();
  machine.rates = measured.rates;
  machine.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  machine.disturbed = DisturbanceOf(measured);
  machine.sources = Sources(config, measured);
  output.Write(MachineJson(machine));
  std::string text = Table(measured, machine, NowSeconds() - begin_s) + Cache(config, machine);
  if (output.asked_for())
    text += fmt::format("  {:<20}{}\n", "written", Printable(config.output.string(), 200));
  PrintTo(TerminalOf(config), text);
  return 0;
}

}  // namespace spillway
