#include "src/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "spillway/error.h"
#include "src/sampling/stop_search.h"
#include "src/sampling/token_choice.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

bool HasText(const Tokenizer& tokenizer, TokenId token) {
  std::string bytes;
  tokenizer.AppendBytes(token, false, bytes);
  return !bytes.empty();
}

}  // namespace

RowSampler::RowSampler(const Request& request, const Tokenizer& tokenizer,
                       std::span<const TokenId> eos, uint64_t run_seed)
    : request_(request),
      tokenizer_(tokenizer),
      eos_(eos),
      seed_(request.sampling.seed.value_or(run_seed)),
      stream_(request.sampling.seed ? 0 : static_cast<uint64_t>(request.line)),
      opens_text_(std::ranges::none_of(request.prompt,
                                       [&](TokenId token) { return HasText(tokenizer, token); })) {
  completion_.num_prompt_tokens = static_cast<int64_t>(request.prompt.size());
  // Room for all tokens, at most a model's positions: the steady loop allocates nothing.
  completion_.tokens.reserve(static_cast<std::size_t>(request.sampling.max_tokens));
  if (request.choices != nullptr) opens_text_ = false;  // it is what it says, a leading space too
}

bool RowSampler::IsEos(TokenId token) const { return std::ranges::find(eos_, token) != eos_.end(); }

bool RowSampler::MayStop() const {
  return static_cast<int64_t>(completion_.tokens.size()) >= request_.sampling.min_tokens;
}

bool RowSampler::EndsRow(TokenId token) const {
  const std::vector<TokenId>& stops = request_.sampling.stop_token_ids;
  if (std::ranges::find(stops, token) != stops.end()) return true;
  return !request_.sampling.ignore_eos && IsEos(token);
}

// False when a masked logit was not finite, which the mask would hide.
bool RowSampler::MaskEnds(std::span<float> logits) const {
  bool finite = true;
  const auto mask = [&](TokenId token) {
    if (token < 0 || static_cast<std::size_t>(token) >= logits.size()) return;
    float& logit = logits[static_cast<std::size_t>(token)];
    finite &= logit < std::numeric_limits<float>::infinity();
    logit = -std::numeric_limits<float>::infinity();
  };
  std::ranges::for_each(request_.sampling.stop_token_ids, mask);
  if (!request_.sampling.ignore_eos) std::ranges::for_each(eos_, mask);
  return finite;
}

// Makes tokens that were there already less likely, as transformers and vLLM do.
void RowSampler::PenaliseRepetition(std::span<float> logits) {
  const auto penalty = static_cast<float>(request_.sampling.repetition_penalty);
  if (seen_.empty()) {
    seen_.resize(logits.size());
    for (const TokenId token : request_.prompt) MarkSeen(token);
  }
  if (!completion_.tokens.empty()) MarkSeen(completion_.tokens.back());
  for (std::size_t token = 0; token < logits.size(); ++token) {
    if (seen_[token])
      logits[token] = logits[token] < 0 ? logits[token] * penalty : logits[token] / penalty;
  }
}

void RowSampler::MarkSeen(TokenId token) {
  if (token >= 0 && static_cast<std::size_t>(token) < seen_.size())
    seen_[static_cast<std::size_t>(token)] = true;
}

bool RowSampler::MayEndChoice() const {
  return !eos_.empty() && request_.choices->IsChoice(SoFar());
}

// Makes the end token stand for all that the model may go on with but longer choices, where the
// text is a choice already.
void RowSampler::SetEndOfChoice(double normaliser, std::span<const TokenId> next,
                                std::span<float> logits) const {
  if (!MayEndChoice()) return;
  double longer = 0.0;
  for (const TokenId token : next)
    longer += std::exp(double{logits[static_cast<std::size_t>(token)]} - normaliser);
  const double ends =
      longer < 1.0 ? normaliser + std::log1p(-longer) : -std::numeric_limits<double>::infinity();
  logits[static_cast<std::size_t>(eos_.front())] = static_cast<float>(ends);
}

// Makes every token impossible that is not among scratch.next, which lead on to a choice.
void RowSampler::KeepChoices(std::span<float> logits, ChoiceScratch& scratch) const {
  std::vector<TokenLogit>& kept = scratch.candidates;
  kept.clear();
  const auto keep = [&](TokenId token) {
    kept.push_back({token, logits[static_cast<std::size_t>(token)]});
  };
  std::ranges::for_each(scratch.next, keep);
  if (MayEndChoice()) keep(eos_.front());
  std::ranges::fill(logits, -std::numeric_limits<float>::infinity());
  for (const TokenLogit& entry : kept) logits[static_cast<std::size_t>(entry.token)] = entry.logit;
}

// Opens the step's entry, in which the chosen token's is filled in later.
void RowSampler::KeepBest(std::span<const float> logits, double normaliser,
                          ChoiceScratch& scratch) {
  StepLogprobs& step = completion_.logprobs.emplace_back();
  step.top = Likeliest(logits, request_.sampling.num_logprobs, normaliser, scratch);
}

std::optional<TokenId> RowSampler::Choose(std::span<float> logits, ChoiceScratch& scratch) {
  const Sampling& sampling = request_.sampling;
  std::vector<float>& given = scratch.given_logits;
  std::optional<double> normaliser;
  const bool penalises = sampling.repetition_penalty != 1.0;
  const ChoiceSet* choices = request_.choices.get();
  if (choices != nullptr) {
    const auto num_tokens = static_cast<int64_t>(completion_.tokens.size());
    choices->Next(SoFar(), sampling.max_tokens - num_tokens, scratch.next);
  }
  if (sampling.num_logprobs >= 0 || choices != nullptr) {
    const std::optional<TokenId> best = ArgMax(logits);
    if (!best) return std::nullopt;
    normaliser = LogSumExp(logits, logits[static_cast<std::size_t>(*best)]);
    if (sampling.num_logprobs >= 0) KeepBest(logits, *normaliser, scratch);
    if (choices != nullptr) SetEndOfChoice(*normaliser, scratch.next, logits);
    if (penalises) given.assign(logits.begin(), logits.end());
  }
  if (penalises) PenaliseRepetition(logits);
  if (!MayStop() && !MaskEnds(logits)) return std::nullopt;
  if (choices != nullptr) KeepChoices(logits, scratch);
  std::optional<TokenId> token = ArgMax(logits);
  if (!token) return std::nullopt;
  if (sampling.temperature > 0.0) {
    const double uniform = UniformDraw(seed_, stream_, completion_.tokens.size());
    token = DrawToken(logits, *token, sampling, uniform, scratch);
  }
  if (normaliser) {
    // Masked or not: what was chosen still has its own logit.
    const std::span<const float> own = penalises ? std::span<const float>(given) : logits;
    const double logprob = own[static_cast<std::size_t>(*token)] - *normaliser;
    if (sampling.num_logprobs >= 0)
      completion_.logprobs.back().chosen = static_cast<float>(logprob);
    logprob_sum_ += logprob;
  }
  return token;
}

// A token that ends the row for being eos adds no text, even where the tokenizer has one for it.
RowStatus RowSampler::Append(TokenId token) {
  const Sampling& sampling = request_.sampling;
  const bool may_stop = MayStop();
  completion_.tokens.push_back(token);
  if (EndsRow(token)) return RowStatus::kStopped;

  const std::size_t old_bytes = bytes_.size();
  tokenizer_.AppendBytes(token, opens_text_, bytes_);
  opens_text_ = opens_text_ && bytes_.empty();
  if (may_stop) {
    if (const auto stop = FindStop(bytes_, old_bytes, sampling.stop)) {
      bytes_.resize(*stop);
      return RowStatus::kStopped;
    }
  }
  const bool full = static_cast<int64_t>(completion_.tokens.size()) >= sampling.max_tokens;
  const ChoiceSet* choices = request_.choices.get();
  const bool chosen = choices != nullptr && choices->IsChoice(SoFar());
  if (chosen && (full || eos_.empty() || !choices->GoesOn(SoFar()))) return RowStatus::kStopped;
  return full ? RowStatus::kLength : RowStatus::kRunning;
}

RowStatus RowSampler::Step(std::span<float> logits, ChoiceScratch& scratch) {
  SPILLWAY_CHECK(status_ == RowStatus::kRunning);
  const std::optional<TokenId> token = Choose(logits, scratch);
  status_ = token ? Append(*token) : RowStatus::kNonFinite;
  return status_;
}

Completion RowSampler::Take() {
  SPILLWAY_CHECK(status_ == RowStatus::kStopped || status_ == RowStatus::kLength);
  completion_.finish_reason =
      status_ == RowStatus::kStopped ? FinishReason::kStop : FinishReason::kLength;
  completion_.text = ReplaceInvalidUtf8(bytes_);
  if (request_.choices != nullptr)
    completion_.choice = {request_.choices->Find(bytes_), logprob_sum_};
  bytes_.clear();
  return std::exchange(completion_, {});
}

}  // namespace spillway
