#include "src/execute/reference_keys.h"

#include <algorithm>
#include <cmath>

#include "kernels/head_reflection.h"
#include "spillway/kv_block.h"

namespace spillway {
namespace {

// `sum` += key / |key|, group by group: as it came, a key of twice the length would count twice,
// and the first token's often is. A key that is not finite makes the sum so.
void AddDirections(const float* key, int64_t head_dim, double* sum) {
  for (int64_t begin = 0; begin < head_dim; begin += kKvGroup) {
    const int64_t end = std::min(begin + kKvGroup, head_dim);
    double squares = 0.0;
    for (int64_t d = begin; d < end; ++d) squares += static_cast<double>(key[d]) * key[d];
    if (squares == 0.0) continue;
    for (int64_t d = begin; d < end; ++d) sum[d] += key[d] / std::sqrt(squares);
  }
}

}  // namespace

// Tokens from all over the vocabulary, behind the one that texts begin with.
ReferenceKeys::ReferenceKeys(const Plan& plan)
    : shape_(plan.shape),
      bytes_(plan.policy.kv_bits == 16 ? ReferenceBytes{} : ReferenceBytesOf(plan.shape)),
      memory_(bytes_.total()) {
  if (plan.policy.kv_bits == 16) return;
  const int64_t num_tokens = ReferenceTokens(shape_);
  for (int64_t token = 0; token < num_tokens; ++token) {
    tokens_.push_back(static_cast<TokenId>(shape_.vocab_size * token / num_tokens));
    positions_.push_back(static_cast<int32_t>(token));
  }
  if (shape_.bos >= 0) tokens_.front() = shape_.bos;
  common_.resize(static_cast<std::size_t>(shape_.num_kv_heads * shape_.head_dim));
}

std::span<const TokenId> ReferenceKeys::Tokens(int64_t begin, int64_t count) const {
  return std::span(tokens_).subspan(static_cast<std::size_t>(begin),
                                    static_cast<std::size_t>(count));
}

std::span<const int32_t> ReferenceKeys::Positions(int64_t begin, int64_t count) const {
  return std::span(positions_)
      .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
}

float* ReferenceKeys::Hidden(int64_t begin) const {
  return memory_.As<float>({bytes_.kv, bytes_.hidden}) + begin * shape_.hidden_size;
}

kernels::AttentionRow ReferenceKeys::Row(int64_t begin, int64_t count) const {
  return {memory_.As<std::byte>({0, bytes_.kv}), ReferenceSlots(shape_), begin, count, 0, nullptr};
}

void ReferenceKeys::AddKeys(const float* keys, int64_t stride, int64_t count) {
  for (int64_t token = 0; token < count; ++token) {
    for (int64_t head = 0; head < shape_.num_kv_heads; ++head) {
      const int64_t at = head * shape_.head_dim;
      AddDirections(keys + token * stride + at, shape_.head_dim, common_.data() + at);
    }
  }
}

void ReferenceKeys::Finish(const PlannedLayer& layer) {
  ++next_layer_;
  if (layer.kind != LayerKind::kAttention) return;
  float* reflectors = ReflectorsOf(layer.block);
  for (int64_t at = 0; at < std::ssize(common_); at += shape_.head_dim)
    kernels::MakeReflector(common_.data() + at, shape_.head_dim, reflectors + at);
  std::ranges::fill(common_, 0.0);
}

float* ReferenceKeys::ReflectorsOf(int64_t block) const {
  return memory_.As<float>({bytes_.kv + bytes_.hidden, bytes_.reflectors}) +
         block * shape_.num_kv_heads * shape_.head_dim;
}

}  // namespace spillway
