#include "src/run/loaded_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "spillway/error.h"
#include "src/base/clock.h"
#include "src/base/host.h"
#include "src/base/size_text.h"
#include "src/base/terminal.h"
#include "src/base/thread_pool.h"
#include "src/memory/arena.h"
#include "src/move/mover.h"
#include "src/move/store_rate.h"
#include "src/move/tiers.h"
#include "src/run/block.h"
#include "src/run/engine.h"
#include "src/run/repeatable_job.h"
#include "src/run/stall_watch.h"
#include "src/store/load_weights.h"
#include "src/store/make_store.h"
#include "src/store/weight_reader.h"

namespace spillway {
namespace {

// Where the weights on disk are read from; converted first where they are in no store yet. Empty
// where the plan has none on disk.
std::filesystem::path PrepareStore(const Run& run, const WeightReader& reader, ThreadPool& pool,
                                   ProgressLine& line) {
  if (run.plan.weight_bytes[Tier::kDisk] == 0) return {};
  if (!run.model.store.empty()) return run.model.store;
  const std::string key = ContentKey(run.model);
  std::filesystem::path path = StorePath(OffloadFolder(run.config), key);
  const std::string name = Printable(path.string());
  const auto progress = [&](int64_t done, int64_t total) {
    line.Note(
        fmt::format("converting weights to {}: {} of {}", name, SizeText(done), SizeText(total)));
  };
  const auto wait = [&] {
    line.Note(fmt::format("another process is converting weights to {}: waiting", name));
  };
  EnsureStore({run.model, key, reader, {}}, path, pool, progress, wait);
  return path;
}

// A cap that was given may be more than there is: touched page by page, it would end in a kill.
void RefuseMoreThanThereIs(const Plan& plan, const Device& device) {
  const int64_t emulated = device.IsHostMemory() ? plan.PlannedBytes(Tier::kGpu) : 0;
  const int64_t needed = plan.PlannedBytes(Tier::kCpu) + emulated;
  const int64_t available = AvailableMemoryBytes();
  if (needed <= available) return;
  throw Error(ErrorCode::kCpuMemory,
              fmt::format("the plan takes {} of memory{}, and the system, or its control group, "
                          "has {} left; give a smaller --cpu-memory",
                          SizeText(needed), emulated > 0 ? ", the emulated GPU's included" : "",
                          SizeText(available)));
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

// A variable of the environment is for tests: seconds until a run that stalls ends.
StallLimits StallLimitsOfRun() {
  const char* end_after_s = std::getenv("SPILLWAY_TEST_STALL_S");
  if (end_after_s == nullptr) return {};
  const double seconds = std::atof(end_after_s);
  return {seconds / 10, seconds};
}

// Without a row that ended since.
constexpr int kMaxTriesAgain = 2;

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

LoadedModel::LoadedModel(const spillway::Run& run, ProgressLine& line)
    : config_(run.config),
      model_(run.model),
      plan_(run.plan),
      device_(run.device),
      trace_log_(run.trace_log),
      line_(line),
      pool_(run.plan.machine.num_threads),
      origin_{*model_.checkpoint, model_.weights, model_.choice.nonfinite} {
  const double begin_s = NowSeconds();
  RefuseMoreThanThereIs(plan_, device_);
  line.Note("loading weights");
  const HostArena convert(pool_.num_threads() * kConvertBytes);
  const WeightReader reader(*model_.checkpoint, model_.weights, model_.choice.nonfinite,
                            convert.View({0, convert.bytes()}), pool_.num_threads());
  const std::filesystem::path store = PrepareStore(run, reader, pool_, line);
  DiskOptions disk = DiskOf(config_, store, trace_log_);
  if (model_.store.empty()) disk.origin = &origin_;
  tiers_.emplace(plan_, disk, device_);
  if (tiers_->SpillsToMemory()) {
    Warn(
        fmt::format("{}: is a filesystem in memory, so that what is offloaded comes on top of "
                    "--cpu-memory; give --offload-dir a folder on a disk",
                    Printable(OffloadFolder(config_).string())));
  }
  LoadTiers(run, reader, *tiers_, pool_);
  store_bytes_per_s_ = StoreBytesPerS(run);
  model_.checkpoint->FreeBuffers();
  load_s_ = NowSeconds() - begin_s;
}

// Measured where it makes a prediction better.
double LoadedModel::StoreBytesPerS(const spillway::Run& run) const {
  if (tiers_->store() == nullptr || !run.expected.predicted_s) return 0.0;
  const bool to_cpu = plan_.device() == Tier::kCpu;
  const Region& memory = to_cpu ? plan_.weight_staging : plan_.bounce.weights_in.region;
  const StallWatch watch = WatchStalls([this] { return DiskPulse(); });
  return MeasureStoreReads(*tiers_->store(), *tiers_->queue(),
                           tiers_->arena(Tier::kCpu).View(memory));
}

Trace LoadedModel::Run(const Plan& plan, Job& job, const ProgressFn& progress) {
  for (const Tier tier : kAllTiers) {
    SPILLWAY_CHECK(plan.weight_bytes[tier] == plan_.weight_bytes[tier]);
    SPILLWAY_CHECK(plan.arena_bytes[tier] <= plan_.arena_bytes[tier]);
  }
  EngineTotals totals;
  try {
    RunUntilWhole(plan, job, progress, totals);
  } catch (...) {
    WarnOfDisk(totals.trace.mending);
    throw;
  }
  Trace& trace = totals.trace;
  WarnOfDisk(trace.mending);
  trace.load_s = load_s_;
  trace.store_bytes_per_s = store_bytes_per_s_;
  if (!device_.IsHostMemory()) trace.peak_bytes[Tier::kGpu] = device_.TakenBytes();
  // The arena that stands for a GPU is in this process too.
  trace.peak_bytes[Tier::kCpu] = PeakResidentBytes() - tiers_->arena(Tier::kGpu).ResidentBytes();
  return trace;
}

void LoadedModel::RunUntilWhole(const Plan& plan, Job& job, const ProgressFn& progress,
                                EngineTotals& totals) {
  if (!tiers_->Spills()) return RunOnce(plan, job, progress, totals);
  RepeatableJob repeatable(job);
  int num_tries = 0;
  int64_t rows_ended = 0;
  while (true) {
    try {
      return RunOnce(plan, repeatable, progress, totals);
    } catch (const SpillLost& lost) {
      if (std::exchange(rows_ended, totals.done.rows) < totals.done.rows) num_tries = 0;
      if (num_tries++ == kMaxTriesAgain) throw;
      ++totals.trace.mending.num_recomputed;
      Warn(fmt::format("the rows that ran begin again: {}", lost.what()));
    }
    tiers_->ForgetSpills();
    repeatable.Repeat();
  }
}

// `totals`: of the run so far, then of this as well, also after a failure.
void LoadedModel::RunOnce(const Plan& plan, Job& job, const ProgressFn& progress,
                          EngineTotals& totals) {
  // First, so that it also watches the end of what may wait for a disk: the mover's threads.
  std::atomic<uint64_t> num_cells = 0;
  StallWatch watch = WatchStalls([&] { return num_cells + pool_.Pulse() + DiskPulse(); });
  Mover mover(plan, *tiers_, trace_log_);
  const std::unique_ptr<Executor> executor =
      device_.MakeExecutor(plan, {tiers_->arena(Tier::kGpu), tiers_->arena(Tier::kCpu)}, pool_);
  BlockBuilder blocks(plan, {model_.tokenizer.get(), config_.seed});
  const Schedule schedule = MakeSchedule(plan, config_.overlap ? Overlap::kOn : Overlap::kOff);
  Engine engine(plan, mover, *executor, pool_, trace_log_, totals);
  UnwatchedJob unwatched(job, watch);
  const auto note_cell = [&](const WorkDone& done) {
    const StallWatch::Pause pause(watch);  // a terminal may be held
    ++num_cells;
    progress(done);
  };
  try {
    engine.Run(schedule, blocks, unwatched, note_cell);
  } catch (...) {
    totals = engine.totals();
    throw;
  }
  totals = engine.totals();
}

uint64_t LoadedModel::DiskPulse() const {
  const DiskQueue* queue = tiers_->queue();
  if (queue == nullptr) return 0;
  return static_cast<uint64_t>(queue->totals(DiskOp::kRead).bytes +
                               queue->totals(DiskOp::kWrite).bytes);
}

StallWatch LoadedModel::WatchStalls(std::function<uint64_t()> pulse) const {
  const StallLimits limits = StallLimitsOfRun();
  return StallWatch(limits, std::move(pulse),
                    [this, limits](StallWatch::Stall stall) { TellOfStall(stall, limits); });
}

void LoadedModel::TellOfStall(StallWatch::Stall stall, const StallLimits& limits) const {
  const bool ends = stall == StallWatch::Stall::kEnd;
  const DiskQueue* queue = tiers_->queue();
  const int num_requests = queue == nullptr ? 0 : queue->num_in_flight();
  std::string text = fmt::format("nothing was read, written or computed for {:.0f} s",
                                 ends ? limits.end_after_s : limits.tell_after_s);
  if (num_requests > 0) {
    text += fmt::format(": {} request{} to {} unanswered; check the disk", num_requests,
                        num_requests == 1 ? "" : "s", Printable(OffloadFolder(config_).string()));
  } else if (!device_.IsHostMemory()) {
    text += ": the GPU does not answer; check it (nvidia-smi)";
  }
  if (!ends) return PrintTo(stderr, fmt::format("spillway: warning: {}\n", text));
  // Not by an exception: the thread that should see it hangs.
  PrintTo(stderr, ErrorLine(ErrorCode::kStalled, text) + "\n");
  ::_exit(ExitStatus(ErrorCode::kStalled));
}

void LoadedModel::WarnOfDisk(const DiskMending& mending) {
  if (const int64_t num = mending.num_repaired; num > 0) {
    Warn(fmt::format("{}: {} tile{} damaged and {} made from the model again; check the disk",
                     Printable(tiers_->store()->path().string()), num, num == 1 ? " was" : "s were",
                     num == 1 ? "was" : "were"));
  }
  if (const int64_t num_rereads = mending.num_rereads; num_rereads > 0) {
    Warn(fmt::format(
        "{} disk read{} gave other bytes than were written and the right ones when repeated; check "
        "the disk",
        num_rereads, num_rereads == 1 ? "" : "s"));
  }
  for (const DiskFile* file : tiers_->files()) {
    if (const std::string reason = file->buffered_reason();
        !reason.empty() && !tiers_->SpillsToMemory()) {
      Warn(fmt::format("{}: goes through the page cache, which is slower: {}",
                       Printable(file->name()), reason));
    }
    if (file->num_repeated() > 0) {
      Warn(fmt::format("{}: {} failed read{} succeeded when repeated; check the disk",
                       Printable(file->name()), file->num_repeated(),
                       file->num_repeated() == 1 ? "" : "s"));
    }
  }
}

void LoadedModel::Warn(const std::string& text) {
  line_.Clear();
  PrintTo(stderr, fmt::format("spillway: warning: {}\n", text));
}

}  // namespace spillway
