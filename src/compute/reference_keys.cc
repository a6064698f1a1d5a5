#include "src/compute/reference_keys.h"

#include <algorithm>

#include "spillway/kv_block.h"

namespace spillway {
namespace {

ReferenceBytes BytesOf(const Plan& plan) {
  return plan.HasReference() ? ReferenceBytesOf(plan.shape) : ReferenceBytes{};
}

}  // namespace

int64_t ReferenceKeys::Bytes(const Plan& plan) { return BytesOf(plan).total(); }

// Chooses tokens from all over the vocabulary, behind the one that texts begin with.
ReferenceKeys::ReferenceKeys(const Plan& plan, std::byte* memory)
    : shape_(plan.shape), bytes_(BytesOf(plan)), memory_(memory) {
  if (!plan.HasReference()) return;
  const int64_t num_tokens = ReferenceTokens(shape_);
  for (int64_t token = 0; token < num_tokens; ++token) {
    tokens_.push_back(static_cast<TokenId>(shape_.vocab_size * token / num_tokens));
    positions_.push_back(static_cast<int32_t>(token));
  }
  if (shape_.bos >= 0) tokens_.front() = shape_.bos;
}

float* ReferenceKeys::Hidden() const { return reinterpret_cast<float*>(memory_ + bytes_.kv); }

kernels::AttentionRow ReferenceKeys::Row(int64_t begin, int64_t count) const {
  return {memory_, ReferenceSlots(shape_), begin, count, 0, nullptr};
}

double* ReferenceKeys::Common() const {
  return reinterpret_cast<double*>(memory_ + bytes_.kv + bytes_.hidden);
}

float* ReferenceKeys::Found(int64_t decoder_layer) const {
  const int64_t begin = bytes_.kv + bytes_.hidden + bytes_.common;
  return reinterpret_cast<float*>(memory_ + begin) +
         decoder_layer * shape_.num_kv_heads * shape_.head_dim;
}

kernels::ReflectorArgs ReferenceKeys::ReflectorArgsOf(int64_t decoder_layer) const {
  return {Common(), shape_.num_kv_heads, shape_.head_dim, Found(decoder_layer)};
}

kernels::KeyDirectionArgs ReferenceKeys::KeyDirections(const kernels::AttentionTensors& tensors,
                                                       int64_t rows) const {
  return {tensors.k, tensors.qkv_stride, rows, tensors.num_kv_heads, tensors.head_dim, Common()};
}

kernels::KeySumArgs ReferenceKeys::KeySums(const kernels::AttentionTensors& tensors,
                                           const Rope& rope, const float* frequencies,
                                           TokenRange tokens) const {
  const int64_t first = std::max<int64_t>(tokens.begin, 1);
  return {tensors.k + (first - tokens.begin) * tensors.qkv_stride,
          tensors.qkv_stride,
          tokens.end - first,
          first,
          tensors.num_kv_heads,
          tensors.head_dim,
          {rope.dims, rope.pairs},
          frequencies,
          Common()};
}

kernels::KeyMeanArgs ReferenceKeys::MeanArgsOf(int64_t decoder_layer) const {
  return {Common(), shape_.num_kv_heads * shape_.head_dim, num_tokens() - 1, Found(decoder_layer)};
}

std::array<kernels::HeadReflectionArgs, 2> ReferenceKeys::Reflections(float* qkv, int64_t rows,
                                                                      int64_t decoder_layer) const {
  kernels::HeadReflectionArgs queries;
  queries.x = qkv;
  queries.stride = WidthOf(shape_, Buf::kQkv);
  queries.rows = rows;
  queries.num_heads = shape_.num_heads;
  queries.num_kv_heads = shape_.num_kv_heads;
  queries.head_dim = shape_.head_dim;
  queries.reflectors = Found(decoder_layer);
  kernels::HeadReflectionArgs keys = queries;
  keys.x += shape_.num_heads * shape_.head_dim;
  keys.num_heads = shape_.num_kv_heads;
  return {queries, keys};
}

}  // namespace spillway
