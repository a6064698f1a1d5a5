#include "src/verbs/run_output.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/terminal.h"

namespace spillway {
namespace {

// Whether the report is of a run that ended with so many answers, those of before among them.
bool CountsAnswers(const std::filesystem::path& path, const ResumedSummary& answers) {
  std::ifstream file(path);
  const auto report = nlohmann::json::parse(file, nullptr, false);
  if (!report.is_object() || report.value("interrupted", nlohmann::json()) == true) return false;
  const auto count = [&](const char* key) {
    int64_t sum = 0;
    for (const char* part : {"workload", "resumed"}) {
      const nlohmann::json::json_pointer place(fmt::format("/{}/{}", part, key));
      if (report.contains(place) && report[place].is_number_integer())
        sum += report[place].get<int64_t>();
    }
    return sum;
  };
  return count("num_completions") == answers.num_completions &&
         count("num_errors") == answers.num_errors;
}

}  // namespace

RunOutput::RunOutput(const Config& config, const std::filesystem::path& input,
                     const std::filesystem::path& output)
    : terminal_(TerminalOf(config)),
      report_(ReportKind::kReport, "--report", config.report, {input, output, config.trace}),
      trace_file_(ReportKind::kTrace, "--trace", config.trace, {input, output, config.report}),
      line_(ProgressStreamOf(config)) {}

TraceLog* RunOutput::OpenTrace(const Plan& plan) {
  return trace_file_.asked_for() ? &trace_log_.emplace(trace_file_, plan) : nullptr;
}

void RunOutput::WriteReport(const Plan& plan, const Trace& trace, const RunSummary& summary) {
  report_.Write(ReportJson(plan, trace, summary));
}

void RunOutput::WriteFiles(const Plan& plan, const Trace& trace, const RunSummary& summary) {
  WriteReport(plan, trace, summary);
  if (trace_log_) trace_log_->Finish();
  line_.Clear();
}

bool RunOutput::WriteFilesOfNothing(const Plan& plan, const RunSummary& summary) {
  const bool stays = report_.IsThere() && CountsAnswers(report_.path(), *summary.resumed);
  const bool told = stays || !report_.asked_for();
  if (!told) WriteReport(plan, {}, summary);
  const bool keeps_trace = told && trace_file_.IsThere();
  if (!keeps_trace && OpenTrace(plan) != nullptr) trace_log_->Finish();
  line_.Clear();
  return stays;
}

void RunOutput::Report(const Plan& plan, const Trace& trace, const RunSummary& summary) {
  WriteFiles(plan, trace, summary);
  Print(ReportTable(plan, trace, summary));
}

void RunOutput::Print(const std::string& text) { PrintTo(terminal_, text); }

}  // namespace spillway
