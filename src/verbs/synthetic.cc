#include "src/verbs/synthetic.h"

#include <fmt/format.h>

#include <algorithm>

#include "spillway/error.h"
#include "src/sampling/random.h"

namespace spillway {
namespace {

// FlexGen's usual lengths.
constexpr int64_t kPromptLen = 512;
constexpr int64_t kGenLen = 32;

constexpr int64_t kRows = 64;

// Rows are alike: more would only be counted again and again while policies are compared.
constexpr int64_t kSampleRows = 4096;

}  // namespace

Workload SyntheticWork(const Config& config, const ModelShape& shape) {
  const RequestShape row = {config.prompt_len.value_or(kPromptLen),
                            config.gen_len.value_or(kGenLen)};
  if (row.slots() > shape.max_positions) {
    throw Error(ErrorCode::kFlag,
                fmt::format("--prompt-len {} and --gen-len {} are {} tokens, but {} has {} "
                            "positions; give fewer",
                            row.prompt_tokens, row.max_new_tokens, row.slots(),
                            Printable(shape.name), shape.max_positions));
  }
  Workload work;
  const int64_t batch_rows = config.gpu_batch_size.value_or(kRows);
  work.num_requests = config.num_requests.value_or(batch_rows * config.num_gpu_batches.value_or(1));
  // A batch is sized by the sample: it must not be shorter than one.
  const int64_t sampled = std::min(work.num_requests, std::max(kSampleRows, batch_rows));
  work.sample.assign(static_cast<std::size_t>(sampled), row);
  work.longest = row;
  return work;
}

SyntheticJob::SyntheticJob(const Workload& work, const ModelShape& shape, uint64_t seed)
    : num_rows_(work.num_requests), row_(work.longest), shape_(shape), seed_(seed) {}

std::optional<Request> SyntheticJob::Next() {
  if (num_given_ == num_rows_) return std::nullopt;
  Request request;
  request.line = ++num_given_;
  request.custom_id = std::to_string(request.line);
  if (shape_.bos >= 0) request.prompt.push_back(shape_.bos);
  while (static_cast<int64_t>(request.prompt.size()) < row_.prompt_tokens) {
    const double draw = UniformDraw(seed_, static_cast<uint64_t>(request.line),
                                    static_cast<uint64_t>(request.prompt.size()));
    request.prompt.push_back(static_cast<TokenId>(draw * static_cast<double>(shape_.vocab_size)));
  }
  request.sampling.max_tokens = row_.max_new_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

void SyntheticJob::Finish(const Request& request, const Completion& completion) {
  ++num_completions_;
  Settle(request.line, completion.tokens);
}

void SyntheticJob::Fail(const Request& request, const std::string&, const std::string&) {
  ++num_errors_;
  Settle(request.line, {});
}

void SyntheticJob::Settle(int64_t row, std::vector<TokenId> tokens) {
  ahead_.emplace(row, std::move(tokens));
  while (!ahead_.empty() && ahead_.begin()->first == next_settled_) {
    fingerprint_.Add(ahead_.begin()->second);
    ahead_.erase(ahead_.begin());
    ++next_settled_;
  }
}

}  // namespace spillway
