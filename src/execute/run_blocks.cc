#include "src/execute/run_blocks.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/thread_pool.h"
#include "spillway/error.h"
#include "src/clock.h"
#include "src/execute/block.h"
#include "src/execute/engine.h"
#include "src/execute/mover.h"
#include "src/execute/prepare.h"
#include "src/execute/tiers.h"
#include "src/machine/probe.h"
#include "src/memory/arena.h"
#include "src/model/load_weights.h"
#include "src/model/make_store.h"
#include "src/model/weight_reader.h"
#include "src/size_text.h"

namespace spillway {
namespace {

// Where the weights on disk are read from; converted first where they are in no store yet. Empty
// where the plan has none on disk.
std::filesystem::path PrepareStore(const Run& run, const WeightReader& reader, ThreadPool& pool,
                                   ProgressLine& line) {
  if (run.plan.weight_bytes[Tier::kDisk] == 0) return {};
  if (!run.model.store.empty()) return run.model.store;
  const std::string key = ContentKey(run.config, run.model);
  const std::filesystem::path path = StorePath(OffloadFolder(run.config), key);
  EnsureStore({run.model.shape, key, reader, {}}, path, pool, [&](int64_t done, int64_t total) {
    line.Note(fmt::format("converting weights to {}: {} of {}", Printable(path.string()),
                          SizeText(done), SizeText(total)));
  });
  return path;
}

// The disk tier of a run. Two variables of the environment are for tests: what goes wrong
// (fault_backend.h) and which backend is used.
DiskOptions DiskOf(const Config& config, const std::filesystem::path& store, TraceLog* trace_log) {
  DiskOptions disk;
  disk.folder = OffloadFolder(config);
  disk.store = store;
  disk.run_id = config.seed;
  disk.trace_log = trace_log;
  if (const char* faults = std::getenv("SPILLWAY_TEST_DISK_FAULTS")) {
    disk.faults = ParseFaultPlan(faults);
  }
  const char* backend = std::getenv("SPILLWAY_TEST_DISK_BACKEND");
  if (backend != nullptr && std::string_view(backend) == "threads") {
    disk.backend = DiskBackendKind::kThreads;
  }
  return disk;
}

void LoadTiers(const Run& run, const WeightReader& reader, const Tiers& tiers, ThreadPool& pool) {
  LoadWeights(run.plan, Tier::kCpu, reader, tiers.arena(Tier::kCpu), pool);
  if (run.device.IsHostMemory()) {
    return LoadWeights(run.plan, Tier::kGpu, reader, tiers.arena(Tier::kGpu), pool);
  }
  const HostArena staging(pool.num_threads() * kStagedReadBytes);
  const WeightUpload upload = {
      staging.View({0, staging.bytes()}),
      [&](std::byte* to, std::span<const std::byte> from) { run.device.CopyIn(to, from); }};
  LoadWeights(run.plan, Tier::kGpu, reader, tiers.arena(Tier::kGpu), pool, &upload);
}

}  // namespace

Trace RunBlocks(const Run& run, Job& job, ProgressLine& line) {
  const auto& [config, model, plan, device, expected, trace_log] = run;
  const double begin_s = NowSeconds();
  line.Note("loading weights");
  ThreadPool pool(plan.machine.num_threads);
  std::optional<HostArena> convert(std::in_place, plan.machine.num_threads * kConvertBytes);
  const WeightReader reader(*model.checkpoint, model.weights, NonFiniteOf(config),
                            convert->View({0, convert->bytes()}), plan.machine.num_threads);
  const std::filesystem::path store = PrepareStore(run, reader, pool, line);
  const Tiers tiers(plan, DiskOf(config, store, trace_log), device);
  LoadTiers(run, reader, tiers, pool);
  convert.reset();
  model.checkpoint->FreeBuffers();
  const double load_s = NowSeconds() - begin_s;

  Mover mover(plan, tiers, trace_log);
  const std::unique_ptr<Executor> executor =
      device.MakeExecutor(plan, {tiers.arena(Tier::kGpu), tiers.arena(Tier::kCpu)}, pool);
  BlockBuilder blocks(plan, {model.tokenizer.get(), config.seed});
  line.Begin(expected);
  const Schedule schedule = ZigZag(plan, config.overlap ? Overlap::kOn : Overlap::kOff);
  Engine engine(plan, mover, *executor, pool, trace_log);
  Trace trace = engine.Run(schedule, blocks, job, [&](const WorkDone& done) { line.Update(done); });
  trace.load_s = load_s;
  if (!device.IsHostMemory()) trace.peak_bytes[Tier::kGpu] = device.TakenBytes();
  // The arena that stands for a GPU is in this process too.
  trace.peak_bytes[Tier::kCpu] = PeakResidentBytes() - tiers.arena(Tier::kGpu).ResidentBytes();
  return trace;
}

std::FILE* TerminalOf(const Config& config) {
  if (config.verbosity == Verbosity::kQuiet) return nullptr;
  const bool answers_lines =
      config.verb == Verb::kGenerate || (config.verb == Verb::kScore && config.perplexity.empty());
  return answers_lines && config.output == "-" ? stderr : stdout;
}

}  // namespace spillway
