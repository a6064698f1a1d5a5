// Causal attention of many new tokens a row, on the GPU's tensor cores, streaming over the row's
// cache; no matrix of scores. Ragged rows are packed, each cut into tiles of kTileQueries queries.
// Queries and weights are rounded to the cache's 16-bit type for the products, sums are fp32:
// beside the CPU's kernel, which keeps both in fp32, that is a relative error of 2^-11 with fp16
// and 2^-8 with bf16 in each factor. A query's bits depend on that query and its row's cache only:
// keys are visited in slot order in tiles that begin at fixed slots, and a key that is masked, or a
// tile of them, adds an exact zero. The oracle is AttentionRef (kernels/attention/attention.h);
// KvAppend has stored the new tokens before.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"  // AttentionRow
#include "kernels/kv/kv_layout.h"
#include "spillway/dtype.h"

namespace spillway {
class Stream;
}

namespace spillway::kernels {

// Pointers are to GPU memory.
struct PrefillAttentionArgs {
  const float* q = nullptr;  // [tokens, num_heads * head_dim], stride q_stride; not yet scaled
  int64_t q_stride = 0;
  float* out = nullptr;  // [tokens, num_heads * head_dim], stride out_stride
  int64_t out_stride = 0;
  float* log_sums =
      nullptr;  // [tokens, num_heads]: log(sum(exp(score))), for PrefillScores; or null
  const AttentionRow* rows = nullptr;
  const RowTile* tiles = nullptr;  // every kTileQueries queries of every row
  int64_t num_tiles = 0;
  int64_t num_heads = 0;
  KvLayout layout;  // head_dim: a multiple of 8, at most kMaxGpuHeadDim
  float scale = 1.0F;
  float soft_cap = 0.0F;         // as in AttentionTensors
  const float* sinks = nullptr;  // likewise; log_sums have them
  int64_t window = 0;            // as in AttentionArgs
  DType kv_dtype = DType::kF16;
  KeyTurns turns =
      {};  // as in AttentionTensors; a turned key is rounded to the type of the factors
  KeyMeans means = {};  // likewise
};

// Stream: one kernel.
void PrefillAttentionAsync(const PrefillAttentionArgs& args, Stream& stream);

// The sums over queries of each token's attention weights, for policies that evict: adds to each
// row's token_scores[head][slot] the weights of this call's queries, one after the other in their
// order, so that the sums do not depend on how a prompt was cut into calls.
struct PrefillScoresArgs {
  PrefillAttentionArgs attention;      // with log_sums, as PrefillAttention left them
  const RowTile* key_tiles = nullptr;  // every kTileKeys slots of every row, new tokens included
  int64_t num_key_tiles = 0;
  int64_t token_scores_stride = 0;  // of the rows' token_scores; none is null
};

// Stream: one kernel.
void PrefillScoresAsync(const PrefillScoresArgs& args, Stream& stream);

}  // namespace spillway::kernels
