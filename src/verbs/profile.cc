#include "src/verbs/profile.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <string_view>

#include "spillway/error.h"
#include "spillway/model.h"
#include "src/base/clock.h"
#include "src/base/report_file.h"
#include "src/base/terminal.h"
#include "src/formats/machine_file.h"
#include "src/profile/profile.h"
#include "src/report/progress.h"
#include "src/verbs/host_profile.h"
#include "src/verbs/machine_for.h"
#include "src/verbs/open_device.h"
#include "src/verbs/policy_for.h"
#include "src/verbs/synthetic.h"

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

// What the rates come to: a long job of models that people know, under the best policy.
std::string Meaning(Config config, const Machine& machine, const Device& device) {
  config.prompt_len = 512;
  config.gen_len = 128;
  config.num_requests = 1024;
  std::string text = fmt::format(
      "  {:<20}1,024 prompts of 512 tokens, 128 new ones, all KV kept{}:\n", "what that comes to",
      config.cpu_compute == CpuCompute::kInt8 ? ", weights of 8 bits" : "");
  for (const std::string_view name : std::array{"llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b"}) {
    ModelShape shape = BuiltInShape(name).value();
    if (config.cpu_compute == CpuCompute::kInt8) shape.weight_bits = 8;
    const Model model = MakeModel(std::move(shape));
    const SearchResult result = SearchFor(
        config, model, machine, SyntheticWork(config, model.shape), NeedsFor(machine, device));
    if (!result.feasible()) {
      text += fmt::format("  {:<20}does not fit\n", name);
      continue;
    }
    const Candidate& best = result.best.front();
    text += fmt::format("  {:<20}about {:.3g} new tokens/s, {} rows at a time, bound by {}\n", name,
                        best.prediction.generated_tokens_per_s,
                        best.policy.gpu_batch_size * best.policy.num_gpu_batches, best.bound_by);
  }
  return text;
}

// The cache is a copy: where a file was asked for, its loss is worth a line and no more.
std::string Cache(const Config& config, const Machine& machine) {
  std::filesystem::path path;
  try {
    path = CacheHostProfile(config, machine);
  } catch (const Error& error) {
    if (config.output.empty()) throw;
    PrintWarning(fmt::format("not cached: {}", error.what()));
    return "";
  }
  if (path.empty()) return "";
  return fmt::format(
      "  {:<20}{}, used by later runs{}\n", "cached", Printable(path.string(), 200),
      config.cpu_compute == CpuCompute::kFp32
          ? ""
          : fmt::format(" with --cpu-compute {}", CpuComputeName(config.cpu_compute)));
}

}  // namespace

int RunProfile(const Config& config) {
  const double begin_s = NowSeconds();
  const ReportFile output(ReportKind::kMachine, "--output", config.output, {});
  const std::unique_ptr<Device> device = OpenDevice(config);
  ProgressLine line(ProgressStreamOf(config));
  const auto& [machine, measured] = MeasureHost(
      config, *device, config.quick ? ProfileLength::kQuick : ProfileLength::kFull, line);
  line.Clear();
  output.Write(MachineJson(machine));
  std::string text = Table(measured, machine, NowSeconds() - begin_s) +
                     Meaning(config, machine, *device) + Cache(config, machine);
  if (output.asked_for())
    text += fmt::format("  {:<20}{}\n", "written", Printable(config.output.string(), 200));
  PrintTo(TerminalOf(config), text);
  return 0;
}

}  // namespace spillway
