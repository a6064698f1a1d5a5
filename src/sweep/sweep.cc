#include "src/sweep/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "spillway/error.h"
#include "src/base/clock.h"
#include "src/base/exit_status.h"
#include "src/base/stop_signal.h"
#include "src/base/terminal.h"
#include "src/config/flags.h"
#include "src/config/sources.h"
#include "src/config/toml_text.h"
#include "src/report/progress.h"
#include "src/sweep/chart_command.h"
#include "src/sweep/grid.h"
#include "src/sweep/point_store.h"
#include "src/sweep/results_csv.h"
#include "src/sweep/run_figures.h"
#include "src/sweep/run_point.h"

namespace spillway {
namespace {

// Progress of a sweep: a line for each point that was run, and on a terminal the one that runs.
class SweepProgress {
 public:
  SweepProgress(const Config& config, const Grid& grid, std::vector<std::string> varied)
      : out_(ProgressStreamOf(config)),
        says_commands_(config.verbosity == Verbosity::kVerbose),
        line_(out_),
        varied_(std::move(varied)),
        num_points_(grid.points.size()) {}

  void Skip(const PointResult& finished) {
    ++num_done_;
    CountTime(finished);
  }

  void Begin(const SweepPoint& point) {
    if (out_ == nullptr || !says_commands_) return;
    constexpr std::size_t kMaxCommand = 1000;
    const std::string command = fmt::format("{}", fmt::join(PointCommand(point), " "));
    PrintTo(out_, fmt::format("{}\n", Printable(command, kMaxCommand)));
  }

  void Tick(const SweepPoint& point, double elapsed_s) {
    line_.Note(fmt::format("point {}/{}  {}  {}  {}", num_done_ + 1, num_points_,
                           DurationText(elapsed_s), EtaText(), LabelText(point)));
  }

  void Finish(const PointResult& result) {
    ++num_done_;
    CountTime(result);
    line_.Clear();
    if (out_ == nullptr) return;
    PrintTo(out_, fmt::format("{:>5}/{}  {:<28}  {}  {}\n", num_done_, num_points_,
                              OutcomeText(result), EtaText(), LabelText(result.point)));
  }

  void Clear() { line_.Clear(); }

 private:
  static std::string OutcomeText(const PointResult& result) {
    if (result.fault) {
      constexpr std::size_t kMaxReason = 200;
      return fmt::format("{} {} {}", StateOf(result), result.fault->code,
                         Printable(result.fault->message, kMaxReason));
    }
    const auto& throughput = result.report["throughput"];
    return fmt::format("{:.4g} tokens/s in {}", throughput.value("generated_tokens_per_s", 0.0),
                       DurationText(result.wall_s));
  }

  std::string LabelText(const SweepPoint& point) const {
    constexpr std::size_t kMaxLabel = 160;
    return Printable(PointLabel(point, varied_), kMaxLabel);
  }

  // A refusal takes no time.
  void CountTime(const PointResult& result) {
    if (result.fault) return;
    ++num_run_;
    run_s_ += result.wall_s;
  }

  // Time left if the points to come take as long as those that ran, in this sweep or an earlier
  // one.
  std::string EtaText() const {
    if (num_run_ == 0) return "ETA -";
    const auto left = static_cast<double>(num_points_ - num_done_);
    return "ETA " + DurationText(left * run_s_ / static_cast<double>(num_run_));
  }

  std::FILE* out_;
  bool says_commands_;
  ProgressLine line_;
  std::vector<std::string> varied_;
  std::size_t num_points_;
  std::size_t num_done_ = 0;
  std::size_t num_run_ = 0;
  double run_s_ = 0.0;
};

// The last "error[CODE]: message" that a program wrote; what it ended with where it wrote none.
PointFault FaultOf(const PointRun& run) {
  PointFault fault{"", "", run.status};
  constexpr std::string_view kBegin = "spillway: error[";
  const std::size_t begin = run.diagnostics.rfind(kBegin);
  if (begin != std::string::npos) {
    const std::string line = run.diagnostics.substr(
        begin + kBegin.size(), run.diagnostics.find('\n', begin) - begin - kBegin.size());
    const std::size_t end = line.find("]: ");
    if (end != std::string::npos) return {line.substr(0, end), line.substr(end + 3), run.status};
  }
  fault.message = run.status > 128 ? fmt::format("ended by signal {}", run.status - 128)
                                   : fmt::format("ended with status {}", run.status);
  return fault;
}

bool RanToEnd(const PointRun& run) {
  return run.status == 0 || run.status == kSomeLinesCarryErrors;
}

// A run that finished has its report, also when some of its rows failed.
PointResult ResultOf(const SweepPoint& point, const PointRun& run, const PointStore& store) {
  PointResult result;
  result.point = point;
  result.wall_s = run.wall_s;
  if (RanToEnd(run)) {
    if (auto report = store.TakeReport()) {
      result.report = std::move(*report);
      return result;
    }
  }
  result.fault = FaultOf(run);
  return result;
}

// The table of what is finished. Written while the sweep goes on, too, for a killed one is worth
// looking at.
class Results {
 public:
  Results(const Grid& grid, std::vector<std::string> varied, PointStore& store)
      : grid_(grid), varied_(std::move(varied)), store_(store) {}

  void Add(PointResult result) {
    points_.push_back(std::move(result));
    constexpr double kSecondsBetween = 10.0;
    if (NowSeconds() - written_s_ >= kSecondsBetween) Write();
  }

  void Write() {
    store_.WriteFile("results.csv", ResultsCsv(points_, FiguresOf(points_, varied_), grid_.flags));
    written_s_ = NowSeconds();
  }

  const std::vector<PointResult>& points() const { return points_; }

 private:
  const Grid& grid_;
  std::vector<std::string> varied_;
  PointStore& store_;
  std::vector<PointResult> points_;
  double written_s_ = NowSeconds();
};

// Runs what no earlier sweep has finished. After a stop, what is finished already is all there is.
void RunPoints(const Grid& grid, const std::vector<std::string>& varied, PointStore& store,
               SweepProgress& progress, Results& results) {
  bool stopped = false;
  for (const SweepPoint& point : grid.points) {
    if (std::optional<PointResult> done = store.Find(point)) {
      progress.Skip(*done);
      results.Add(std::move(*done));
      continue;
    }
    stopped = stopped || StopRequested();
    if (stopped) continue;
    progress.Begin(point);
    const PointRun run = RunPoint(point, store.PlaceForReport(),
                                  [&](double elapsed_s) { progress.Tick(point, elapsed_s); });
    stopped =
        !RanToEnd(run) && (StopRequested() || run.status == ExitStatus(ErrorCode::kInterrupted));
    if (stopped) continue;
    PointResult result = store.Keep(ResultOf(point, run, store), PointLabel(point, varied));
    progress.Finish(result);
    results.Add(std::move(result));
  }
  progress.Clear();
}

// Variables that would set a flag of a point, were it run by hand, and none of the sweep itself.
std::vector<std::string> VariablesOfPoints(Verb verb) {
  const std::vector<Flag> own = FlagsOf(Verb::kSweep);
  std::vector<std::string> names;
  for (const Flag& flag : FlagsOf(verb)) {
    const bool is_own = std::ranges::find(own, flag.name, &Flag::name) != own.end();
    if (!is_own && EnvironmentValue(flag.name) != nullptr)
      names.push_back(EnvironmentName(flag.name));
  }
  return names;
}

// A point is what its file says, on every machine; who set a variable should know.
void WarnOfVariables(Verb verb) {
  const std::vector<std::string> names = VariablesOfPoints(verb);
  if (names.empty()) return;
  PrintWarning(
      fmt::format("the points of a sweep take no flags from the environment; set what {} say{} in "
                  "the sweep's file",
                  fmt::join(names, ", "), names.size() == 1 ? "s" : ""));
}

std::string SummaryText(const Config& config, std::size_t num_points, std::size_t num_faults) {
  const std::string refused = num_faults == 0 ? "" : fmt::format(", {} could not run", num_faults);
  const std::string draw = ChartCommand(config.output);
  constexpr std::size_t kMaxCommand = 10'000;
  return fmt::format("  {} points{}\n  {}\n  {}\n", num_points, refused,
                     Printable((config.output / "results.csv").string(), kMaxCommand),
                     draw.empty() ? "charts: plot_sweep.py, which draws them, is not installed"
                                  : "charts: " + Printable(draw, kMaxCommand));
}

}  // namespace

int RunSweep(const Config& config) {
  const std::string text = ReadTomlText(config.grid.string(), "sweep");
  const Grid grid = ParseGrid(config.grid.string(), text, config.run_verb);
  PointStore store(config.output);
  store.WriteFile("grid.toml", text);
  const std::vector<std::string> varied = VariedFlags(grid);
  WarnOfVariables(grid.points.front().verb);
  SweepProgress progress(config, grid, varied);
  Results results(grid, varied, store);
  RunPoints(grid, varied, store, progress, results);
  results.Write();
  const std::vector<PointResult>& points = results.points();
  if (points.size() < grid.points.size()) {
    throw Error(ErrorCode::kInterrupted,
                fmt::format("stopped with {} of {} points finished; the same command goes on",
                            points.size(), grid.points.size()));
  }
  const auto num_faults = static_cast<std::size_t>(std::ranges::count_if(
      points, [](const PointResult& result) { return result.fault.has_value(); }));
  PrintTo(TerminalOf(config), SummaryText(config, points.size(), num_faults));
  return num_faults == 0 ? 0 : kSomeLinesCarryErrors;
}

}  // namespace spillway
