#include "src/run/supervisor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "spillway/error.h"
#include "src/base/clock.h"
#include "src/base/host.h"
#include "src/base/terminal.h"
#include "src/run/repeatable_job.h"

namespace spillway {
namespace {

// A variable of the environment is for tests: seconds until a run that stalls ends.
StallLimits StallLimitsOfRun() {
  const char* end_after_s = std::getenv("SPILLWAY_TEST_STALL_S");
  if (end_after_s == nullptr) return {};
  const double seconds = std::atof(end_after_s);
  return {seconds / 10, seconds};
}

// Limit of tries without a row that ended since.
constexpr int kMaxTriesAgain = 2;

}  // namespace

Supervisor::Supervisor(const RunInputs& inputs, ProgressLine& line)
    : inputs_(inputs), line_(line), begin_s_(NowSeconds()), model_(inputs, line) {
  // Measured where it makes a prediction better.
  if (!inputs.expected.course.empty() && model_.tiers().store() != nullptr) {
    const StallWatch watch = WatchStalls([this] { return model_.Pulse(); });
    store_bytes_per_s_ = model_.MeasureStore();
  }
  inputs.model.checkpoint->FreeBuffers();
  load_s_ = NowSeconds() - begin_s_;
}

Trace Supervisor::Run(const Plan& plan, const Schedule& schedule, Job& job,
                      const ProgressFn& progress) {
  EngineTotals totals;
  try {
    RunUntilWhole({plan, schedule, progress}, job, totals);
  } catch (const Error& error) {
    WarnOfDisk(totals.trace.mending);
    if (error.code() == ErrorCode::kInterrupted)
      throw StoppedRun(error, TraceOf(std::move(totals)));
    throw;
  } catch (...) {
    WarnOfDisk(totals.trace.mending);
    throw;
  }
  WarnOfDisk(totals.trace.mending);
  return TraceOf(std::move(totals));
}

// Adds to a run's trace what is not the engine's to know.
Trace Supervisor::TraceOf(EngineTotals totals) const {
  Trace trace = std::move(totals.trace);
  trace.load_s = load_s_;
  trace.store_bytes_per_s = store_bytes_per_s_;
  Device& device = inputs_.device;
  if (!device.IsHostMemory()) trace.peak_bytes[Tier::kGpu] = device.TakenBytes();
  // The arena that stands for a GPU is in this process too.
  const Arena& gpu = model_.tiers().arena(Tier::kGpu);
  trace.peak_bytes[Tier::kCpu] = PeakResidentBytes() - gpu.ResidentBytes();
  return trace;
}

void Supervisor::RunUntilWhole(const Work& work, Job& job, EngineTotals& totals) {
  if (!model_.tiers().Spills()) return RunOnce(work, job, totals);
  RepeatableJob repeatable(job);
  int num_tries = 0;
  int64_t rows_ended = 0;
  while (true) {
    try {
      return RunOnce(work, repeatable, totals);
    } catch (const SpillLost& lost) {
      if (std::exchange(rows_ended, totals.done.rows) < totals.done.rows) num_tries = 0;
      if (num_tries++ == kMaxTriesAgain) throw;
      ++totals.trace.mending.num_recomputed;
      line_.Warn(fmt::format("the rows that ran begin again: {}", lost.what()));
    }
    model_.tiers().ForgetSpills();
    repeatable.Repeat();
  }
}

void Supervisor::RunOnce(const Work& work, Job& job, EngineTotals& totals) {
  // Started first, so that it also watches the end of what may wait for a disk: the mover's
  // threads.
  std::atomic<uint64_t> num_cells = 0;
  StallWatch watch = WatchStalls([&] { return num_cells + model_.Pulse(); });
  UnwatchedJob unwatched(job, watch);
  const auto note_cell = [&](const WorkDone& done) {
    const StallWatch::Pause pause(watch);  // a terminal may be held
    ++num_cells;
    work.progress(done);
  };
  model_.Run(work.plan, work.schedule, unwatched, note_cell, totals);
}

StallWatch Supervisor::WatchStalls(std::function<uint64_t()> pulse) const {
  const StallLimits limits = StallLimitsOfRun();
  return StallWatch(limits, std::move(pulse),
                    [this, limits](StallWatch::Stall stall) { ReportStall(stall, limits); });
}

void Supervisor::ReportStall(StallWatch::Stall stall, const StallLimits& limits) const {
  const bool ends = stall == StallWatch::Stall::kEnd;
  const DiskQueue* queue = model_.tiers().queue();
  const int num_requests = queue == nullptr ? 0 : queue->num_in_flight();
  std::string text = fmt::format("nothing was read, written or computed for {:.0f} s",
                                 ends ? limits.end_after_s : limits.tell_after_s);
  if (num_requests > 0) {
    text += fmt::format(": {} request{} to {} unanswered; check the disk", num_requests,
                        num_requests == 1 ? "" : "s", Printable(inputs_.offload_folder.string()));
  } else if (!inputs_.device.IsHostMemory()) {
    text += ": the GPU does not answer; check it (nvidia-smi)";
  }
  if (!ends) return PrintWarning(text);
  // Not by an exception: the thread that should see it hangs.
  PrintTo(stderr, ErrorLine(ErrorCode::kStalled, text) + "\n");
  ::_exit(ExitStatus(ErrorCode::kStalled));
}

void Supervisor::WarnOfDisk(const DiskMending& mending) {
  if (const int64_t num = mending.num_repaired; num > 0) {
    line_.Warn(fmt::format("{}: {} tile{} damaged and {} made from the model again; check the disk",
                           Printable(model_.tiers().store()->path().string()), num,
                           num == 1 ? " was" : "s were", num == 1 ? "was" : "were"));
  }
  if (const int64_t num_rereads = mending.num_rereads; num_rereads > 0) {
    line_.Warn(fmt::format(
        "{} disk read{} gave other bytes than were written and the right ones when repeated; check "
        "the disk",
        num_rereads, num_rereads == 1 ? "" : "s"));
  }
  for (const DiskFile* file : model_.tiers().files()) {
    if (const std::string reason = file->buffered_reason();
        !reason.empty() && !model_.tiers().SpillsToMemory()) {
      line_.Warn(fmt::format("{}: goes through the page cache, which is slower: {}",
                             Printable(file->name()), reason));
    }
    if (file->num_repeated() > 0) {
      line_.Warn(fmt::format("{}: {} failed read{} succeeded when repeated; check the disk",
                             Printable(file->name()), file->num_repeated(),
                             file->num_repeated() == 1 ? "" : "s"));
    }
  }
}

Trace RunJob(const RunInputs& inputs, const Schedule& schedule, Job& job, ProgressLine& line) {
  Supervisor supervisor(inputs, line);
  line.Begin(inputs.expected);
  return supervisor.Run(inputs.plan, schedule, job,
                        [&](const WorkDone& done) { line.Update(done); });
}

}  // namespace spillway
