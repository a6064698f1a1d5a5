#include "src/sweep/results_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "src/config/version.h"
#include "src/sweep/run_point.h"
#include "src/sweep/sweep_charts.h"

namespace spillway {
namespace {

// Series colours differ in lightness as well as in hue, for eyes that see few hues.
constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --page: #fcfcfb; --ink: #14140f; --soft: #5c5b56; --grid: #e4e3dd;
  --axis: #a9a79e; --s0: #2a6fc9; --s1: #e2662d; --s2: #16926a; --s3: #b98500; --s4: #6a4fc0;
  --s5: #c23a56; }
@media (prefers-color-scheme: dark) { :root { --page: #191917; --ink: #f4f3ee; --soft: #b4b2a8;
  --grid: #31312d; --axis: #66655e; --s0: #5a9bef; --s1: #f0834e; --s2: #35b68a; --s3: #d9a62a;
  --s4: #a190f0; --s5: #ee6f88; } }
body { background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  max-width: 960px; margin: 32px auto; padding: 0 20px; }
h1 { font-size: 24px; line-height: 1.25; margin: 0 0 4px; }
h2 { font-size: 18px; margin: 40px 0 4px; }
p { margin: 4px 0 12px; color: var(--soft); }
svg { display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif; }
.ink { fill: var(--ink); } .soft { fill: var(--soft); }
.middle { text-anchor: middle; } .end { text-anchor: end; }
.grid { stroke: var(--grid); } .axis { stroke: var(--axis); }
.roof { stroke: var(--soft); stroke-width: 1.5; } .dashed { stroke-dasharray: 5 4; }
.s0 { --own: var(--s0); } .s1 { --own: var(--s1); } .s2 { --own: var(--s2); }
.s3 { --own: var(--s3); } .s4 { --own: var(--s4); } .s5 { --own: var(--s5); }
.dot { stroke: var(--page); stroke-width: 1.2; }
.f0, .f1, .f2 { fill: var(--own); }
.f1, .f2 { fill-opacity: 0.45; stroke: var(--own); stroke-width: 1.4; }
.f2 { fill-opacity: 0.1; stroke-dasharray: 3 2; }
.outlined .dot { fill: none; stroke: var(--ink); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid var(--grid);
  vertical-align: top; white-space: nowrap; }
td.number, th.number { text-align: right; } td.reason { white-space: normal; color: var(--soft); }
a { color: inherit; } code { font-size: 12px; }
)";

std::string Section(const std::string& title, const std::string& text, const std::string& chart) {
  return fmt::format("<h2>{}</h2>\n<p>{}</p>\n{}", EscapeHtml(title), EscapeHtml(text), chart);
}

std::string Joined(const std::set<std::string>& names) {
  return fmt::format("{}", fmt::join(names, "; "));
}

// Counts of what became of the points, and where.
std::string Summary(const std::vector<PointResult>& results,
                    const std::vector<RunFigures>& figures) {
  std::map<std::string, int> counts;
  std::set<std::string> machines;
  for (std::size_t at = 0; at < results.size(); ++at) {
    ++counts[std::string(StateOf(results[at]))];
    if (!figures[at].machine.empty()) machines.insert(figures[at].machine);
  }
  std::string text = fmt::format("{} points", results.size());
  for (const auto& [state, count] : counts) text += fmt::format(", {} {}", count, state);
  const bool simulated = counts.contains("simulated");
  if (!machines.empty())
    text +=
        fmt::format(". {}: {}", simulated ? "Simulated, not measured, on" : "On", Joined(machines));
  return fmt::format("{}. Spillway {}.", text, kVersion);
}

std::string Number(const std::optional<double>& value, std::string_view unit = "") {
  return fmt::format("<td class=\"number\">{}</td>",
                     value ? EscapeHtml(ShortNumber(*value) + std::string(unit)) : "");
}

std::string Row(std::size_t index, const PointResult& result, const RunFigures& run) {
  const std::string command = fmt::format("{}", fmt::join(PointCommand(result.point), " "));
  const std::string link = fmt::format("<td><a href=\"{}\" title=\"{}\">{}</a></td>",
                                       EscapeHtml(result.file), EscapeHtml(command), index);
  std::string row = fmt::format("<tr>{}<td>{}</td><td>{}</td><td>{}</td>", link,
                                EscapeHtml(run.name), EscapeHtml(run.kv), StateOf(result));
  if (result.fault) {
    return row + fmt::format("<td class=\"reason\" colspan=\"5\">{} {}</td></tr>\n",
                             EscapeHtml(result.fault->code), EscapeHtml(result.fault->message));
  }
  row += Number(run.tokens_per_s) +
         Number(run.simulated ? std::nullopt : run.predicted_tokens_per_s) +
         Number(run.speedup, " x");
  const auto block = [&](const char* key) {
    const auto& report = result.report;
    return report.contains("block") && report["block"].contains(key) ? report["block"][key].dump()
                                                                     : "";
  };
  row += fmt::format("<td>{} x {}</td>", EscapeHtml(block("gpu_batch_size")),
                     EscapeHtml(block("num_gpu_batches")));
  return row + fmt::format("<td>{}</td></tr>\n", EscapeHtml(run.roof ? run.roof->level : ""));
}

std::string Table(const std::vector<PointResult>& results, const std::vector<RunFigures>& figures) {
  std::string text =
      "<div class=\"wide\"><table>\n<tr><th>#</th><th>point</th><th>KV</th><th>state</th>"
      "<th class=\"number\">tokens/s</th><th class=\"number\">predicted</th>"
      "<th class=\"number\">over full KV</th><th>rows x batches</th><th>limit</th></tr>\n";
  for (std::size_t at = 0; at < results.size(); ++at) {
    text += Row(at + 1, results[at], figures[at]);
  }
  return text + "</table></div>\n";
}

std::string Charts(const std::vector<RunFigures>& figures) {
  std::string text = Section("Throughput", "Generated tokens over prefill and decode time.",
                             DrawBars(ThroughputChart(figures)));
  if (const auto chart = SpeedupChart(figures)) {
    text += Section("Speed-up over full KV",
                    "For each model and lengths, the fastest run of each KV policy and bits over "
                    "the fastest one that keeps all KV, in the most bits that the sweep has.",
                    DrawBars(*chart));
  }
  if (const auto chart = PredictionChart(figures)) {
    text += Section("Predicted against measured",
                    "What the cost model expects of this machine's rates. The dashed lines are 15 "
                    "% off.",
                    DrawXy(*chart));
  }
  if (const auto chart = RooflineChart(figures)) {
    text += Section("Roofline",
                    "Decode passes under the machine's limits. Each run is counted in bytes of the "
                    "level that would take it longest at full rate, which its shape names: the "
                    "device's memory, or a link.",
                    DrawXy(*chart));
  } else {
    text += Section("Roofline",
                    "Not drawn: the machine's rates are not known. spillway profile "
                    "measures them for later runs.",
                    "");
  }
  return text;
}

}  // namespace

std::string ResultsPage(const std::string& title, const std::vector<PointResult>& results,
                        const std::vector<RunFigures>& figures) {
  const std::string name = EscapeHtml(title.empty() ? "Spillway sweep" : title);
  return fmt::format(
             "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
             "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<h1>{}</h1>\n<p>{}</p>\n",
             name, kStyle, name, EscapeHtml(Summary(results, figures))) +
         Charts(figures) +
         Section("All points",
                 "Each number leads to the point's report; its command shows on "
                 "hovering. results.csv has more columns.",
                 Table(results, figures)) +
         "</body>\n</html>\n";
}

}  // namespace spillway
