#include "src/verbs/prompt_file.h"

#include <algorithm>
#include <memory>

#include "src/base/date_text.h"
#include "src/verbs/line_warnings.h"

namespace spillway {
namespace {

// Requests whose lengths the search weighs.
constexpr int64_t kSampleRequests = 4096;

}  // namespace

ReaderOptions ReaderOptionsFor(const Config& config, const OpenedModel& model) {
  const ModelShape& shape = model.shape;
  ReaderOptions options;
  options.defaults = config.sampling;
  options.max_tokens_yield = std::ranges::find(config.from_generation_config, "max_new_tokens") !=
                             config.from_generation_config.end();
  options.special_text = config.special_text;
  options.max_positions = shape.max_positions;
  options.kv = config.kv;
  options.vocab_rows = shape.vocab_size;
  options.ends = shape.eos;
  options.start_token = shape.bos;
  options.input_name = InputName(config.input, {});
  options.strict = config.strict;
  options.cut = config.cut;
  options.allow_duplicate_ids = config.allow_duplicate_ids;
  options.shard = config.shard.value_or(Shard{});
  if (config.verb == Verb::kScore) options.score = PrefillOf(config);
  options.chat = std::make_shared<const ChatReading>(model.tokenizer_folder, config.chat_template,
                                                     config.chat_date.value_or(DayBeforeToday(0)),
                                                     config.system);
  return options;
}

PromptFile::PromptFile(const Config& config, const OpenedModel& model)
    : path_(config.input), options_(ReaderOptionsFor(config, model)), tokenizer_(*model.tokenizer) {
  if (!NeedsStaging(path_)) return;
  staged_.emplace(StageInput(path_, OffloadDisk(config)));
  path_ = staged_->path();
}

InputScan PromptFile::Scan() const {
  InputScan scan = ScanInput(path_, tokenizer_, options_, kSampleRequests);
  WarnOfLines(options_.input_name, options_, scan);
  return scan;
}

RequestReader PromptFile::Read() const { return RequestReader(path_, tokenizer_, options_); }

Beginnings BeginningsOf(const Config& config) {
  return config.shares_beginnings ? Beginnings::kShared : Beginnings::kApart;
}

Workload WorkloadOf(const InputScan& scan) {
  Workload work;
  work.num_requests = scan.num_requests;
  work.sample = scan.sample;
  work.longest = {scan.max_prompt_tokens, scan.max_row_tokens - scan.max_prompt_tokens,
                  scan.max_prompt_logits};
  return work;
}

Workload WorkloadOf(const InputScan& scan, const Setting& setting) {
  constexpr int64_t kMostOfMemory = 8;  // a part of the device's
  Workload work = WorkloadOf(scan);
  const ModelShape& shape = setting.model.shape;
  if (!setting.config.shares_beginnings || scan.num_requests < 2) return work;
  const int64_t token_bytes =
      shape.num_layers * KvSlotBytes(shape.num_kv_heads, shape.head_dim, KvBits(16));
  const int64_t most = setting.machine.cap_bytes[setting.machine.device] / kMostOfMemory;
  const int64_t num_tokens = std::min(std::ssize(scan.prefix), most / token_bytes);
  work.prefix.assign(scan.prefix.begin(),
                     scan.prefix.begin() + num_tokens / kPrefixStep * kPrefixStep);
  return work;
}

ScorePrefill PrefillOf(const Config& config) { return {config.prefill, config.kv.evicts()}; }

}  // namespace spillway
