// Prefetches of decode: which lines, and how far ahead. Private to attention_simd.h and
// attention_decode_simd.h: compiled once per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

// Choice of what is prefetched while a head's run in a KV block is read. True: the run that is read
// next, which lies in the step's other block (measured best on Zen 3). False, with 16 lanes and for
// codes: the bytes kAheadBytes further on in the same block (best on Zen 4).
template <int kBits>
constexpr bool kFetchOther = Simd::kLanes < 16 && kBits == 16;

// Prefetch distance within a block, into the second-level cache, as a hint to a processor that
// reads ahead by itself. Prefetches into the first-level cache held up the reads and cost a tenth
// of the rate. Measured with heads of 64 and 128 dimensions, at distances of 1 to 16 KiB; of codes,
// on a Xeon of the fourth generation.
template <int kBits>
constexpr int64_t kAheadBytes = kBits == 16 ? 2048 : 4096;

// Distance in a task of few heads, whose steps are shorter than memory takes to answer; at most so
// many steps.
constexpr int64_t kFewAheadBytes = 4096;
constexpr int64_t kMostStepsAhead = 4;

// Distance where a group of queries shares what is read, which takes longer: measured on a Xeon of
// the fifth generation at 2 to 8 KiB, where all were alike.
constexpr int64_t kSharedAheadBytes = 4096;

// Bytes of each KV block of the next step that are prefetched while this step is read, at most half
// of the block's runs. The next step lies elsewhere in memory, where the processor's own prefetcher
// starts at a third of its rate. Prefetches go into the first-level cache: those into the second
// are dropped where many are under way. Measured likewise, at 4 to 32 KiB on Zen 4, at 0 to 16 KiB
// on Zen 3.
template <int kBits>
constexpr int64_t kNextStepBytes = int64_t{kFetchOther<kBits> ? 8 : 16} << 10;

// Lines of memory that are prefetched while others are computed with, some in each round: a burst
// of requests would fill the line buffers, and arithmetic would wait for them. They lie in two
// runs of equal length.
struct LinesAhead {
  const std::byte* at = nullptr;
  const std::byte* end = nullptr;
  const std::byte* other = nullptr;  // null: no other run
  int64_t bytes = 0;                 // of a run
  bool two_a_round = false;

  inline __attribute__((always_inline)) void FetchOne() {
    if (at == end) {
      if (other == nullptr) return;
      at = other;
      end = other + bytes;
      other = nullptr;
    }
    __builtin_prefetch(at, 0, 2);
    at += 64;
  }
  inline __attribute__((always_inline)) void FetchSome() {
    FetchOne();
    if (two_a_round) FetchOne();
  }
};
struct NoLinesAhead {
  void FetchSome() const {}
};

inline int64_t BytesBetween(const std::byte* from, const std::byte* to) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from));
}

}  // namespace
}  // namespace spillway::kernels
