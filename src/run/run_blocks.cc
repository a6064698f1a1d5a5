#include "src/run/run_blocks.h"

#include <cmath>
#include <cstdio>

#include "src/run/loaded_model.h"

namespace spillway {

ExpectedWork ExpectedOf(const Workload& work, const Plan& plan,
                        const std::optional<Prediction>& predicted) {
  ExpectedWork expected = {work.num_requests, 0, plan.batch.rows * plan.num_batches, std::nullopt};
  int64_t sampled = 0;
  for (const RequestShape& request : work.sample)
    sampled += request.prompt_logits - 1 + request.max_new_tokens;
  if (sampled > 0) {
    const double rows_per_sampled =
        static_cast<double>(work.num_requests) / static_cast<double>(work.sample.size());
    expected.tokens = std::llround(static_cast<double>(sampled) * rows_per_sampled);
  }
  if (predicted) expected.predicted_s = predicted->total_s();
  return expected;
}

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
