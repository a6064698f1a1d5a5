// spillway: Config -> Model, Machine, Workload -> Policy -> Plan -> Schedule -> Trace -> Report.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

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
#include "src/verbs/merge.h"
#include "src/verbs/perplexity.h"
#include "src/verbs/plan.h"
#include "src/verbs/profile.h"
#include "src/verbs/search.h"
#include "src/verbs/simulate.h"
#include "src/verbs/stream.h"
#include "src/verbs/tokenize.h"

namespace spillway {
namespace {

int Run(const std::variant<Config, Printout>& parsed) {
  if (const auto* printout = std::get_if<Printout>(&parsed)) {
    PrintTo(stdout, printout->text);
    return 0;
  }
  const Config& config = std::get<Config>(parsed);
  if (config.stream) return AnswerStreamed(config);
  switch (config.verb) {
    case Verb::kGenerate:
      return AnswerLines(config);
    case Verb::kScore:
      return config.perplexity.empty() ? AnswerLines(config) : RunPerplexity(config);
    case Verb::kBench:
      return RunBench(config);
    case Verb::kSweep:
      return RunSweep(config);
    case Verb::kMerge:
      return RunMerge(config);
    case Verb::kTokenize:
      return RunTokenize(config);
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

// Runs of which nothing stays but the text that they print.
bool OnlyPrints(const std::variant<Config, Printout>& parsed) {
  const auto* config = std::get_if<Config>(&parsed);
  if (config == nullptr || config->verb == Verb::kInspect || PlansOnly(config->verb)) return true;
  const bool prints_figures = config->verb == Verb::kBench || !config->perplexity.empty();
  return (prints_figures && config->report.empty()) ||
         (config->verb == Verb::kCalibrate && config->output.empty());
}

int Fail(ErrorCode code, const char* message) {
  PrintTo(stderr, ErrorLine(code, message) + "\n");
  return ExitStatus(code);
}

// Run, with the exit status that --exit-interrupted asks for.
int RunUntilStopped(const std::variant<Config, Printout>& parsed) {
  const auto* config = std::get_if<Config>(&parsed);
  if (config == nullptr || config->interrupted_status == 0) return Run(parsed);
  try {
    return Run(parsed);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) throw;
    Fail(error.code(), error.what());
    return static_cast<int>(config->interrupted_status);
  }
}

int RunAndPrint(int argc, const char* const* argv) {
  const std::variant<Config, Printout> parsed = ParseConfig(argc, argv);
  if (const auto* config = std::get_if<Config>(&parsed))
    SetStopGrace(static_cast<double>(config->grace_s));
  const int status = RunUntilStopped(parsed);
  const int lost = LostOutputError();
  if (lost == 0 || !OnlyPrints(parsed)) return status;
  ThrowSystemError(lost, "standard output", ErrorCode::kIo, "redirect it to where there is room");
}

struct Failure {
  ErrorCode code;
  const char* message;
};

Failure OutOfMemory() {
  if (IsAddressSpaceLimited()) {
    return {ErrorCode::kSystemLimit,
            "the limit on address space is reached; raise it (ulimit -v) or lower --cpu-memory"};
  }
  return {ErrorCode::kCpuMemory, "out of memory; lower --cpu-memory or close other programs"};
}

Failure FailureOf(const std::exception_ptr& exception) {
  try {
    if (exception) std::rethrow_exception(exception);
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (...) {
  }
  return {ErrorCode::kInternal, "an exception could not be handled; please report it"};
}

// Ends the program where an exception leaves what may not throw: the destructors of JSON values ask
// for memory. As after a kill, the same command goes on. Takes no memory itself.
[[noreturn]] void EndAtOnce() {
  const Failure failure = FailureOf(std::current_exception());
  const std::string_view name = ErrorName(failure.code);
  std::fprintf(stderr, "spillway: error[%.*s]: %s\n", static_cast<int>(name.size()), name.data(),
               failure.message);
  std::_Exit(ExitStatus(failure.code));
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  using namespace spillway;
  std::set_terminate(EndAtOnce);
  FillStandardDescriptors();
  InstallStopSignals();
  try {
    return RunAndPrint(argc, argv);
  } catch (const Error& error) {
    return Fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    const Failure failure = OutOfMemory();
    return Fail(failure.code, failure.message);
  } catch (const std::exception& error) {
    return Fail(ErrorCode::kInternal, error.what());
  }
}
