// spillway: Config -> Model, Machine, Workload -> Policy -> Plan -> Schedule -> Trace -> Report.
#include <cstdio>
#include <exception>
#include <new>

#include "spillway/error.h"
#include "src/base/stop_signal.h"
#include "src/base/system_error.h"
#include "src/base/terminal.h"
#include "src/config/config.h"
#include "src/sweep/sweep.h"
#include "src/verbs/answer_lines.h"
#include "src/verbs/bench.h"
#include "src/verbs/calibrate.h"
#include "src/verbs/convert.h"
#include "src/verbs/inspect.h"
#include "src/verbs/perplexity.h"
#include "src/verbs/plan.h"
#include "src/verbs/profile.h"
#include "src/verbs/search.h"
#include "src/verbs/simulate.h"

namespace spillway {
namespace {

int Run(const std::variant<Config, Printout>& parsed) {
  if (const auto* printout = std::get_if<Printout>(&parsed)) {
    PrintTo(stdout, printout->text);
    return 0;
  }
  const Config& config = std::get<Config>(parsed);
  switch (config.verb) {
    case Verb::kGenerate:
      return AnswerLines(config);
    case Verb::kScore:
      return config.perplexity.empty() ? AnswerLines(config) : RunPerplexity(config);
    case Verb::kBench:
      return RunBench(config);
    case Verb::kSweep:
      return RunSweep(config);
    case Verb::kPlan:
      return RunPlan(config);
    case Verb::kCalibrate:
      return RunCalibrate(config);
    case Verb::kProfile:
      return RunProfile(config);
    case Verb::kSearch:
      return RunSearch(config);
    case Verb::kSimulate:
      return RunSimulate(config);
    case Verb::kConvert:
      return RunConvert(config);
    case Verb::kInspect:
      PrintTo(stdout, config.shapes ? DescribeShapes() : DescribePath(config.inspect_path));
      return 0;
  }
  return 0;
}

// Verbs whose work is the text that they print.
bool OnlyPrints(const std::variant<Config, Printout>& parsed) {
  const auto* config = std::get_if<Config>(&parsed);
  return config == nullptr || config->verb == Verb::kInspect || PlansOnly(config->verb);
}

int RunAndPrint(int argc, const char* const* argv) {
  const std::variant<Config, Printout> parsed = ParseConfig(argc, argv);
  const int status = Run(parsed);
  const int lost = LostOutputError();
  if (lost == 0 || !OnlyPrints(parsed)) return status;
  ThrowSystemError(lost, "standard output", ErrorCode::kIo, "redirect it to where there is room");
}

int Fail(ErrorCode code, const char* message) {
  PrintTo(stderr, ErrorLine(code, message) + "\n");
  return ExitStatus(code);
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  using namespace spillway;
  FillStandardDescriptors();
  InstallStopSignals();
  try {
    return RunAndPrint(argc, argv);
  } catch (const Error& error) {
    return Fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    if (IsAddressSpaceLimited())
      return Fail(
          ErrorCode::kSystemLimit,
          "the limit on address space is reached; raise it (ulimit -v) or lower --cpu-memory");
    return Fail(ErrorCode::kCpuMemory, "out of memory; lower --cpu-memory or close other programs");
  } catch (const std::exception& error) {
    return Fail(ErrorCode::kInternal, error.what());
  }
}
