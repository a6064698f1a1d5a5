#include "src/verbs/synthetic.h"

#include <fmt/format.h>

#include <algorithm>

#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "src/sampling/random.h"

namespace spillway {
namespace {

// FlexGen's usual lengths.
constexpr int64_t kPromptLen = 512;
constexpr int64_t kGenLen = 32;

constexpr int64_t kRows = 64;

// Rows are alike: more would only be counted again and again while policies are compared.
constexpr int64_t kSampleRows = 4096;

TokenId TokenAt(const ModelShape& shape, uint64_t seed, int64_t line, int64_t position) {
  if (position == 0 && shape.bos >= 0) return shape.bos;
  const double draw =
      UniformDraw(seed, static_cast<uint64_t>(line), static_cast<uint64_t>(position));
  return static_cast<TokenId>(draw * static_cast<double>(shape.vocab_size));
}

// The tokens that all rows begin with: those of line 0, which is no row's.
std::vector<TokenId> PrefixOf(const Config& config, const ModelShape& shape,
                              const RequestShape& row) {
  if (config.prefix_len >= row.prompt_tokens) {
    throw Error(ErrorCode::kFlag,
                fmt::format("--prefix-len {}: all of a prompt's {} tokens; give fewer, or a larger "
                            "--prompt-len",
                            config.prefix_len, row.prompt_tokens));
  }
  std::vector<TokenId> prefix;
  const int64_t num_tokens = config.prefix_len / kPrefixStep * kPrefixStep;
  for (int64_t position = 0; position < num_tokens; ++position)
    prefix.push_back(TokenAt(shape, config.seed, 0, position));
  return prefix;
}

}  // namespace

Workload SyntheticWork(const Config& config, const ModelShape& shape) {
  const RequestShape row = {config.prompt_len.value_or(kPromptLen),
                            config.gen_len.value_or(kGenLen)};
  if (config.kv.rolls) {
    const std::string why =
        WhyTooLong(config.kv, shape.max_positions, {row.prompt_tokens, row.max_new_tokens});
    if (!why.empty()) {
      throw Error(ErrorCode::kFlag, fmt::format("--prompt-len {} and --gen-len {}: {}",
                                                row.prompt_tokens, row.max_new_tokens, why));
    }
  } else if (row.slots() > shape.max_positions) {
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
  work.prefix = PrefixOf(config, shape, row);
  return work;
}

SyntheticJob::SyntheticJob(const Workload& work, const ModelShape& shape, uint64_t seed)
    : num_rows_(work.num_requests),
      row_(work.longest),
      prefix_(work.prefix),
      shape_(shape),
      seed_(seed) {}

std::optional<Request> SyntheticJob::Next() {
  if (num_given_ == num_rows_) return std::nullopt;
  Request request;
  request.line = ++num_given_;
  request.custom_id = std::to_string(request.line);
  request.prompt = prefix_;
  while (std::ssize(request.prompt) < row_.prompt_tokens)
    request.prompt.push_back(TokenAt(shape_, seed_, request.line, std::ssize(request.prompt)));
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
