// RunOutput: what a verb that runs writes beside its answers: progress, --report and --trace, and
// the table at the end. Thread rule: the main thread.
#pragma once

#include <cstdio>
#include <filesystem>
#include <optional>

#include "spillway/report.h"
#include "src/base/report_file.h"
#include "src/config/config.h"
#include "src/report/progress.h"
#include "src/report/trace_log.h"

namespace spillway {

class RunOutput {
 public:
  // `input` and `output`: what else the verb reads and writes. Throws: as ReportFile.
  RunOutput(const Config& config, const std::filesystem::path& input,
            const std::filesystem::path& output);

  ProgressLine& line() { return line_; }

  // Null where no trace is asked for. Lifetime: the output's. Throws: as TraceLog.
  TraceLog* OpenTrace(const Plan& plan);

  // The report alone. Throws: as ReportFile.
  void WriteReport(const Plan& plan, const Trace& trace, const RunSummary& summary);

  // The report, then the trace. Throws: as ReportFile and TraceLog.
  void WriteFiles(const Plan& plan, const Trace& trace, const RunSummary& summary);

  // Files of a run that found nothing left to do: a report that counts as many answers as were
  // there (summary.resumed) stays, and the trace beside it, for they say more. True: they stayed.
  bool WriteFilesOfNothing(const Plan& plan, const RunSummary& summary);

  // The files, and the table of them for people.
  void Report(const Plan& plan, const Trace& trace, const RunSummary& summary);

  // For people; nothing with --quiet.
  void Print(const std::string& text);

 private:
  std::FILE* terminal_;
  ReportFile report_;
  ReportFile trace_file_;
  ProgressLine line_;
  std::optional<TraceLog> trace_log_;
};

}  // namespace spillway
