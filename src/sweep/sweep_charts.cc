#include "src/sweep/sweep_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace spillway {
namespace {

// Names in the order in which they first come.
class Series {
 public:
  std::size_t IndexOf(const std::string& name) {
    const auto found = std::ranges::find(names_, name);
    if (found != names_.end()) return static_cast<std::size_t>(found - names_.begin());
    names_.push_back(name);
    return names_.size() - 1;
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

// The KV policies of all points, so that each has one colour in all charts: "full" first.
Series KvSeries(const std::vector<RunFigures>& figures) {
  Series series;
  for (const RunFigures& run : figures) {
    if (run.kv == "full") series.IndexOf(run.kv);
  }
  for (const RunFigures& run : figures) series.IndexOf(run.kv);
  return series;
}

std::string HoverText(const RunFigures& run) {
  std::string text =
      fmt::format("{}, {}: {} tokens/s", run.name, run.kv, ShortNumber(run.tokens_per_s));
  if (run.speedup) text += fmt::format("\n{:.2f} x full KV", *run.speedup);
  if (run.roof) {
    text += fmt::format("\ndecodes at {} GFLOP/s, {} FLOP a byte of {}",
                        ShortNumber(run.roof->flops_per_s / 1e9),
                        ShortNumber(run.roof->flops_per_byte), run.roof->level);
  }
  return text;
}

std::string RateText(double bytes_per_s) {
  return fmt::format("{} GB/s", ShortNumber(bytes_per_s / 1e9));
}

// The diagonal of each level and the ceiling of each machine that points are under.
std::vector<ChartLine> Roofs(const std::vector<RunFigures>& figures) {
  constexpr double kFar = 1e9;
  std::map<std::pair<std::string, double>, double> slopes;  // of level and rate: up to this ceiling
  std::map<double, double> ceilings;                        // from this FLOP a byte on
  for (const RunFigures& run : figures) {
    if (!run.roof) continue;
    const RoofPoint& roof = *run.roof;
    double& highest = slopes[{roof.level, roof.level_bytes_per_s}];
    highest = std::max(highest, roof.matmul_flops_per_s);
    const double ridge = roof.matmul_flops_per_s / roof.level_bytes_per_s;
    const auto [at, is_new] = ceilings.try_emplace(roof.matmul_flops_per_s, ridge);
    at->second = std::min(at->second, ridge);
  }
  std::vector<ChartLine> lines;
  for (const auto& [slope, ceiling] : slopes) {
    const auto& [level, bytes_per_s] = slope;
    lines.push_back({{ceiling / 1e9 / kFar, bytes_per_s * ceiling / 1e9 / kFar / 1e9},
                     {ceiling / bytes_per_s, ceiling / 1e9},
                     fmt::format("{} {}", level, RateText(bytes_per_s)),
                     level != "memory"});
  }
  for (const auto& [flops_per_s, from] : ceilings) {
    lines.push_back({{from, flops_per_s / 1e9},
                     {from * kFar, flops_per_s / 1e9},
                     fmt::format("products {} GFLOP/s", ShortNumber(flops_per_s / 1e9)),
                     false});
  }
  return lines;
}

std::string WorkName(const RunFigures& run) {
  return fmt::format("{}, {}{}", run.model, run.lengths,
                     run.as_flexgen ? ", FlexGen's schedule" : "");
}

}  // namespace

BarChart ThroughputChart(const std::vector<RunFigures>& figures) {
  Series series = KvSeries(figures);
  Series names;
  BarChart chart;
  chart.title = "Generated tokens per second of each point";
  const bool simulated = std::ranges::all_of(figures, &RunFigures::simulated);
  chart.x_axis =
      simulated ? "generated tokens per second, simulated" : "generated tokens per second";
  for (const RunFigures& run : figures) {
    names.IndexOf(run.name);
    Bar bar{run.name, series.IndexOf(run.kv), {}, run.kv + ": " + run.fault, run.fault};
    if (run.fault.empty()) {
      bar.value = run.tokens_per_s;
      bar.text = ShortNumber(run.tokens_per_s);
      bar.hover = HoverText(run);
    }
    chart.bars.push_back(std::move(bar));
  }
  // What differs in its KV policy alone stands together.
  std::ranges::stable_sort(chart.bars, {},
                           [&](const Bar& bar) { return names.IndexOf(bar.label); });
  chart.series = series.names();
  return chart;
}

std::optional<BarChart> SpeedupChart(const std::vector<RunFigures>& figures) {
  Series series = KvSeries(figures);
  Series works;
  // By work and KV policy, each in the order in which they first come.
  std::map<std::pair<std::size_t, std::size_t>, const RunFigures*> best;
  for (const RunFigures& run : figures) {
    if (!run.speedup || run.kv == "full") continue;
    const std::pair key(works.IndexOf(WorkName(run)), series.IndexOf(run.kv));
    const RunFigures*& fastest = best.try_emplace(key, &run).first->second;
    if (*run.speedup > *fastest->speedup) fastest = &run;
  }
  if (best.empty()) return std::nullopt;
  BarChart chart;
  chart.title = "Speed-up over full KV";
  chart.x_axis = "times the fastest run with full KV";
  chart.mark = 1.0;
  chart.series = series.names();
  for (const auto& [key, run] : best) {
    chart.bars.push_back({works.names()[key.first], key.second, *run->speedup,
                          fmt::format("{:.2f} x", *run->speedup), HoverText(*run)});
  }
  return chart;
}

std::optional<XyChart> PredictionChart(const std::vector<RunFigures>& figures) {
  Series series = KvSeries(figures);
  XyChart chart;
  chart.id = "predicted";
  chart.title = "Predicted against measured tokens per second";
  chart.x_axis = "predicted, generated tokens per second";
  chart.y_axis = "measured, generated tokens per second";
  chart.series = series.names();
  for (const RunFigures& run : figures) {
    if (run.simulated || !run.predicted_tokens_per_s || run.tokens_per_s <= 0.0) continue;
    chart.dots.push_back({*run.predicted_tokens_per_s, run.tokens_per_s, series.IndexOf(run.kv),
                          DotShape::kCircle,
                          fmt::format("{}\n{} predicted", HoverText(run),
                                      ShortNumber(*run.predicted_tokens_per_s))});
  }
  if (chart.dots.empty()) return std::nullopt;
  chart.same_range = true;
  constexpr double kLow = 1e-6;
  constexpr double kHigh = 1e9;
  constexpr double kOff = 0.15;
  chart.lines = {
      {{kLow, kLow}, {kHigh, kHigh}, "", false},
      {{kLow, kLow * (1 + kOff)}, {kHigh, kHigh * (1 + kOff)}, "15 % faster than predicted", true},
      {{kLow, kLow * (1 - kOff)}, {kHigh, kHigh * (1 - kOff)}, "", true}};
  return chart;
}

std::optional<XyChart> RooflineChart(const std::vector<RunFigures>& figures) {
  Series series = KvSeries(figures);
  XyChart chart;
  chart.id = "roofline";
  chart.title = "Roofline of decoding";
  chart.x_axis = "FLOP per byte of the level that limits the run";
  chart.y_axis = "GFLOP/s while decoding";
  chart.series = series.names();
  Series levels;  // memory and four links: one shape each
  for (const RunFigures& run : figures) {
    if (!run.roof) continue;
    chart.dots.push_back({run.roof->flops_per_byte, run.roof->flops_per_s / 1e9,
                          series.IndexOf(run.kv),
                          static_cast<DotShape>(levels.IndexOf(run.roof->level)), HoverText(run)});
  }
  chart.shapes = levels.names();
  if (chart.dots.empty()) return std::nullopt;
  chart.lines = Roofs(figures);
  return chart;
}

}  // namespace spillway
