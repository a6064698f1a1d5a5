#include "src/sampling/next_token.h"

#include "src/sampling/row_scorer.h"
#include "src/sampling/sampler.h"

namespace spillway {

std::unique_ptr<NextToken> MakeNextToken(const Request& request, const Tokenizer& tokenizer,
                                         std::span<const TokenId> eos, uint64_t run_seed) {
  if (request.scored) return std::make_unique<RowScorer>(request);
  return std::make_unique<RowSampler>(request, tokenizer, eos, run_seed);
}

}  // namespace spillway
