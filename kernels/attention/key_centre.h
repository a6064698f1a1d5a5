// Centre of a KV head's keys: their mean before rotary positions turn them, and what a cache with
// keys of 4 bits leaves out of a key because of it (kernels/kv/key_means.h). The mean is that of
// the keys of a reference prompt.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kv/key_means.h"
#include "kernels/kv/key_turns.h"
#include "kernels/kv/kv_code.h"
#include "spillway/layer.h"  // RopePairs
#include "src/base/thread_pool.h"

namespace spillway {
class Stream;
}

namespace spillway::kernels {

// Rotation of a head by positions: of its first `dims` elements, pair by pair.
struct HeadRotation {
  int64_t dims = 0;
  RopePairs pairs = RopePairs::kHalves;

  // Elements of a pair in a head.
  constexpr int64_t First(int64_t pair) const { return AsTurns().First(pair); }
  constexpr int64_t Second(int64_t pair) const { return AsTurns().Second(pair); }

 private:
  constexpr KeyTurns AsTurns() const { return {nullptr, 0, dims, pairs}; }
};

// Place of a head's element in a row of a GPU's table: that of its code of 4 bits, so that a lane
// reads means as it reads codes.
constexpr int64_t MeanPlace(int64_t element, int64_t head_dim) {
  const KvCodePlace code = KvCodeAt(element, head_dim, 4);
  return 2 * code.byte + code.shift / 4;
}

// Keys that positions have turned, one behind the other from `first_position` on.
struct KeySumArgs {
  const float* keys = nullptr;  // [rows, num_kv_heads * head_dim], row stride `stride` (in floats)
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t first_position = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  HeadRotation rotation;
  const float* inverse_frequencies = nullptr;  // [rotation.dims / 2]
  double* sums = nullptr;                      // [num_kv_heads, head_dim]
};

// sums += keys, turned back, in order of the rows. Any thread.
void SumKeys(const KeySumArgs& args);
// Pointers are to GPU memory. Stream: one kernel.
void SumKeysAsync(const KeySumArgs& args, Stream& stream);

struct KeyMeanArgs {
  double* sums = nullptr;  // [size]; zeros afterwards
  int64_t size = 0;
  int64_t num_keys = 0;    // that were summed; 0: means are zeros
  float* means = nullptr;  // [size]
};

// means = sums / num_keys; zero where that is not finite. Any thread.
void MakeKeyMeans(const KeyMeanArgs& args);
void MakeKeyMeansAsync(const KeyMeanArgs& args, Stream& stream);

// Cosines and sines, in the mean of a span's positions: [span][cosines, sines][dims / 2] at a
// stride of `stride` floats from span to span.
struct SpanTurnArgs {
  std::span<const float> inverse_frequencies = {};
  int64_t first_span = 0;
  int64_t num_spans = 0;
  int64_t stride = 0;
  float* turns = nullptr;  // of first_span, in host memory
};

// Thread rule: one call at a time per pool.
void FillSpanTurns(const SpanTurnArgs& args, ThreadPool& pool);

struct SpanMeanArgs {
  const float* means = nullptr;  // [num_kv_heads, head_dim]
  const float* turns = nullptr;  // as FillSpanTurns leaves them
  int64_t turns_stride = 0;
  HeadRotation rotation;
  int64_t num_kv_heads = 0;
  int64_t num_spans = 0;
  int64_t head_dim = 0;    // a power of two, at most kMaxTurnedDim (head_turn.h)
  float* table = nullptr;  // of KeyMeans
  int64_t first = 0;       // of the spans that are filled
  int64_t end = 0;         // at most num_spans
};

// Fills spans [first, end) of the table: means turned by each span's positions, then as TurnHeads
// turns heads; no span: nothing. Thread rule: one call at a time per pool.
void FillSpanMeans(const SpanMeanArgs& args, ThreadPool& pool);
// Likewise; on a GPU a row lies by MeanPlace. Stream: three kernels.
void FillSpanMeansAsync(const SpanMeanArgs& args, Stream& stream);

struct CentreKeysArgs {
  float* keys = nullptr;  // [rows, num_kv_heads * head_dim], row stride `stride`; in place
  int64_t stride = 0;
  int64_t rows = 0;
  const int32_t* positions = nullptr;  // [rows], below num_spans * kKeyMeanSpan
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  KeyMeans means;
};

// Takes the mean at its position away from each key, whose head is turned. A row's bits depend on
// that row only. Thread rule: one call at a time per pool.
void CentreKeys(const CentreKeysArgs& args, ThreadPool& pool);
// Rows: under 2^16. Stream: one kernel.
void CentreKeysAsync(const CentreKeysArgs& args, Stream& stream);

}  // namespace spillway::kernels
