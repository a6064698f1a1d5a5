// kernels/simd/mma.cuh on the CPU, from PTX's description of ldmatrix and mma.m16n8k16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

#include "kernels/simd/launch.cuh"

namespace spillway::kernels {

inline void CopyAsync16(void* to, const void* from, bool is_there) {
  constexpr unsigned char kZeros[16] = {};
  soft_gpu::CopyLater(to, is_there ? from : kZeros, 16);
}

inline void CommitCopies() { soft_gpu::CommitCopies(); }

template <int kPending>
void WaitForCopies() {
  soft_gpu::WaitForCopies(kPending);
}

struct Fragment4 {
  uint32_t words[4];
};

// Lanes 8 m to 8 m + 7 give the rows of matrix m, 8 elements of 16 bits each. Word m of a lane is
// two of its elements: of row lane / 4 those of columns 2 (lane % 4) and the next; transposed, of
// that column those of these rows.
template <bool kTransposed>
Fragment4 LoadMatrices(const void* row) {
  const auto own = reinterpret_cast<uint64_t>(row);
  const auto* shown =
      soft_gpu::Exchange({static_cast<uint32_t>(own), static_cast<uint32_t>(own >> 32)});
  const unsigned lane = soft_gpu::Lane();
  Fragment4 f;
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    uint16_t pair[2];
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned r = kTransposed ? 2 * (lane % 4) + i : lane / 4;
      const unsigned c = kTransposed ? lane / 4 : 2 * (lane % 4) + i;
      const auto& from = shown[8 * matrix + r];
      const auto* elements =
          reinterpret_cast<const uint16_t*>(static_cast<uint64_t>(from[1]) << 32 | from[0]);
      pair[i] = elements[c];
    }
    std::memcpy(&f.words[matrix], pair, sizeof(pair));
  }
  return f;
}

// c += A B of the warp: A from `a`, 16 x 16, and B from b0 and b1, 16 x 8, of which lane 4 n + t
// has rows 2 t, 2 t + 1 (b0) and these + 8 (b1) of column n.
template <typename T>
void MultiplyAdd(float (&c)[4], const Fragment4& a, uint32_t b0, uint32_t b1) {
  const uint32_t words[6] = {a.words[0], a.words[1], a.words[2], a.words[3], b0, b1};
  soft_gpu::LaneData own;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto bits = static_cast<uint16_t>(words[i / 2] >> (16 * (i % 2)));
    T value;
    std::memcpy(&value, &bits, sizeof(value));
    own[i] = __float_as_uint(Widen(value));
  }
  const auto* shown = soft_gpu::Exchange(own);
  // Lane 4 r + t has of A the rows r and r + 8 and of B the column r, each at 2 t, 2 t + 1 and
  // these + 8. The four sums are independent, each in the order of k.
  const std::size_t lane = soft_gpu::Lane();
  const soft_gpu::LaneData* of_row = shown + lane / 4 * 4;
  const soft_gpu::LaneData* of_cols = shown + lane % 4 * 8;
  for (std::size_t k = 0; k < 16; ++k) {
    const std::size_t from = k % 8 / 2;
    const std::size_t in_a = k / 8 * 4 + k % 2;
    const std::size_t in_b = 8 + k / 8 * 2 + k % 2;
    const float rows[2] = {__uint_as_float(of_row[from][in_a]),
                           __uint_as_float(of_row[from][in_a + 2])};
    const float cols[2] = {__uint_as_float(of_cols[from][in_b]),
                           __uint_as_float(of_cols[4 + from][in_b])};
    for (std::size_t i = 0; i < 4; ++i) c[i] += rows[i / 2] * cols[i % 2];
  }
}

}  // namespace spillway::kernels
