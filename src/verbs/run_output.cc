#include "src/verbs/run_output.h"

#include "src/base/terminal.h"

namespace spillway {

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

bool RunOutput::WriteMissingFiles(const Plan& plan, const Trace& trace, const RunSummary& summary) {
  const bool has_report = report_.IsThere();
  const bool has_trace = trace_file_.IsThere();
  if (!has_report) WriteReport(plan, trace, summary);
  if (!has_trace && OpenTrace(plan) != nullptr) trace_log_->Finish();
  line_.Clear();
  return has_report || has_trace;
}

void RunOutput::Report(const Plan& plan, const Trace& trace, const RunSummary& summary) {
  WriteFiles(plan, trace, summary);
  Print(ReportTable(plan, trace, summary));
}

void RunOutput::Print(const std::string& text) { PrintTo(terminal_, text); }

}  // namespace spillway
