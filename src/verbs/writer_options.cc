#include "src/verbs/writer_options.h"

namespace spillway {

WriterOptions WriterOptionsOf(const Config& config, const OpenedModel& model) {
  WriterOptions options;
  options.model_name = model.shape.name;
  if (config.verb == Verb::kScore) options.form = AnswerForm::kScore;
  options.splits_reasoning = config.split_reasoning;
  return options;
}

}  // namespace spillway
