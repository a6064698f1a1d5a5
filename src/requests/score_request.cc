#include "src/requests/score_request.h"

#include <algorithm>
#include <utility>

#include "spillway/error.h"

namespace spillway {

int64_t ScorePrefill::Of(int64_t first, int64_t num_tokens) const {
  const int64_t wanted = tokens.value_or(stops_at_context ? first : num_tokens);
  return std::clamp<int64_t>(wanted, 1, num_tokens - 1);
}

KnownTokens WithCutContext(KnownTokens text, int64_t max_positions) {
  const auto num_tokens = static_cast<int64_t>(text.tokens.size());
  const int64_t num_cut = std::max<int64_t>(0, num_tokens - (max_positions + 1));
  SPILLWAY_CHECK(num_cut < text.first);
  text.tokens.erase(text.tokens.begin(), text.tokens.begin() + num_cut);
  text.first -= num_cut;
  text.num_cut = num_cut;
  return text;
}

Request ScoreRequest(KnownTokens text, const ScorePrefill& prefill) {
  SPILLWAY_CHECK(text.first >= 1 && !text.tokens.empty());
  Request request;
  ScoredText& scored = request.scored.emplace();
  scored.first = text.first;
  scored.num_unscored = text.num_unscored;
  request.num_cut = text.num_cut;
  const auto num_tokens = static_cast<int64_t>(text.tokens.size());
  if (text.first < num_tokens) {
    const auto told = text.tokens.begin() + prefill.Of(text.first, num_tokens);
    scored.told.assign(told, text.tokens.end());
    text.tokens.erase(told, text.tokens.end());
  }
  request.prompt = std::move(text.tokens);
  request.sampling.max_tokens = static_cast<int64_t>(scored.told.size());
  return request;
}

}  // namespace spillway
