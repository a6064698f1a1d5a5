#include "src/execute/run_blocks.h"

#include <cstdio>

#include "src/execute/loaded_model.h"

namespace spillway {

Trace RunBlocks(const Run& run, Job& job, ProgressLine& line) {
  LoadedModel model(run, line);
  line.Begin(run.expected);
  return model.Run(run.plan, job, [&](const WorkDone& done) { line.Update(done); });
}

std::FILE* TerminalOf(const Config& config) {
  if (config.verbosity == Verbosity::kQuiet) return nullptr;
  const bool answers_lines =
      config.verb == Verb::kGenerate || (config.verb == Verb::kScore && config.perplexity.empty());
  return answers_lines && config.output == "-" ? stderr : stdout;
}

}  // namespace spillway
