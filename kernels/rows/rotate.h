// Rotary positions: the first `dims` of each head are turned pair by pair, in place. Pair i of a
// row turns by the angle position * inverse frequency i, a product in fp32 as transformers has it;
// with c and s the angle's cosine and sine times `factor`,
//   (a, b) -> (a c - b s, b c + a s)
// where a and b are elements i and i + dims / 2 (kHalves), or 2i and 2i + 1 (kNeighbours).
// A row's bits depend on that row only, and are the same for every number of threads.
// Thread rule: one call at a time per pool; the reference runs in any thread.
#pragma once

#include <cstdint>

#include "spillway/layer.h"  // RopePairs
#include "src/base/isa.h"
#include "src/base/thread_pool.h"

namespace spillway {
class Stream;
}

namespace spillway::kernels {

inline constexpr int64_t kMaxRotaryDims = 512;

struct RotateArgs {
  float* x = nullptr;  // [rows, num_heads * head_dim], stride x_stride
  int64_t x_stride = 0;
  int64_t rows = 0;
  int64_t num_heads = 0;  // queries' and keys' together, where they lie side by side
  int64_t head_dim = 0;
  const int32_t* positions = nullptr;          // [rows]
  const float* inverse_frequencies = nullptr;  // [tables][dims / 2]
  int64_t dims = 0;                            // even, at most head_dim and kMaxRotaryDims
  RopePairs pairs = RopePairs::kHalves;
  float factor = 1.0F;              // longer contexts' attention factor (YaRN, longrope)
  const int32_t* tables = nullptr;  // [rows]: the table of each; null: the first
};

// Cosines and sines are within 1e-6 * factor for angles up to 131,072. An element that is not
// finite spoils its pair only.
void Rotate(const RotateArgs& args, ThreadPool& pool, Isa isa);
void RotateRef(const RotateArgs& args);

// GPU form: pointers are to GPU memory. Stream: one kernel.
void RotateAsync(const RotateArgs& args, Stream& stream);

}  // namespace spillway::kernels
