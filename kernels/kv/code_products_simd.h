// CodeProducts: 64 codes times a query's numbers, exactly, in the best way that this translation
// unit's instruction set has. Codes of 8 bits are taken in their order; of 4 bits, the lower
// nibbles of 32 bytes first. Private to code_query_simd.h, whose includers are compiled once per
// instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simd/simd.h"
#include "spillway/kv_block.h"

namespace spillway::kernels {
namespace {

// Numbers of 16 bits, in their order.
struct ShortNumbers {
  static void StoreNumbers(const float (&from)[kKvGroup], float* numbers) {
    auto* shorts = reinterpret_cast<std::byte*>(numbers);
    for (int64_t i = 0; i < kKvGroup; i += Simd::kLanes)
      Simd::StoreShorts(shorts + 2 * i, Simd::Load(from + i));
  }
};

#if defined(__AVX512VNNI__)

// Bytes times bytes: the numbers' upper and lower bytes, both with a sign.
class CodeProducts {
 public:
  static constexpr int kTileRows = 16;

  explicit CodeProducts(const float* numbers)
      : upper_(_mm512_loadu_si512(numbers)), lower_(_mm512_loadu_si512(numbers + 16)) {}

  static void StoreNumbers(const float (&from)[kKvGroup], float* numbers) {
    auto* upper = reinterpret_cast<std::byte*>(numbers);
    for (int64_t i = 0; i < kKvGroup; i += Simd::kLanes) {
      const __m512i words = _mm512_cvtps_epi32(Simd::Load(from + i));
      const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(words, _mm512_set1_epi32(128)), 8);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(upper + i), _mm512_cvtepi32_epi8(high));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(upper + kKvGroup + i),
                       _mm512_cvtepi32_epi8(words));
    }
  }

  // Words whose sum is codes . numbers.
  template <int kBits>
  Simd::F Of(const std::byte* codes) const {
    const __m512i of_slot = Codes<kBits>(codes);
    const __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), of_slot, upper_);
    return _mm512_castsi512_ps(_mm512_dpbusd_epi32(_mm512_slli_epi32(sums, 8), of_slot, lower_));
  }

  template <int kBits>
  static void LoadTile(const std::byte* codes, int64_t code_bytes, float (*rows)[16]) {
    Simd::F of[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) of[i] = _mm512_castsi512_ps(Codes<kBits>(codes + i * code_bytes));
    Simd::Transpose(of);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) Simd::Store(rows[i], of[i]);
  }

  // codes . numbers of each slot. Two sums of each, since one would be a chain of latencies.
  static Simd::F OfTile(const float (*rows)[16], const float* numbers) {
    const auto* words = reinterpret_cast<const int32_t*>(numbers);
    __m512i upper[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    __m512i lower[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const __m512i row = _mm512_load_si512(rows[i]);
      upper[i % 2] = _mm512_dpbusd_epi32(upper[i % 2], row, _mm512_set1_epi32(words[i]));
      lower[i % 2] = _mm512_dpbusd_epi32(lower[i % 2], row, _mm512_set1_epi32(words[16 + i]));
    }
    const __m512i high = _mm512_slli_epi32(_mm512_add_epi32(upper[0], upper[1]), 8);
    return _mm512_castsi512_ps(_mm512_add_epi32(high, _mm512_add_epi32(lower[0], lower[1])));
  }

 private:
  template <int kBits>
  static __m512i Codes(const std::byte* p) {
    if constexpr (kBits == 8) return _mm512_loadu_si512(p);
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m512i both =
        _mm512_inserti64x4(_mm512_castsi256_si512(bytes), _mm256_srli_epi16(bytes, 4), 1);
    return _mm512_and_si512(both, _mm512_set1_epi8(15));
  }

  __m512i upper_;
  __m512i lower_;
};

#elif defined(__AVX512F__)

// Pairs of 16 bits.
class CodeProducts : public ShortNumbers {
 public:
  static constexpr int kTileRows = 32;

  explicit CodeProducts(const float* numbers)
      : numbers_{_mm512_loadu_si512(numbers), _mm512_loadu_si512(numbers + 16)} {}

  template <int kBits>
  Simd::F Of(const std::byte* codes) const {
    __m512i of_slot[2];
    Codes<kBits>(codes, of_slot);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_madd_epi16(of_slot[0], numbers_[0]),
                                                _mm512_madd_epi16(of_slot[1], numbers_[1])));
  }

  template <int kBits>
  static void LoadTile(const std::byte* codes, int64_t code_bytes, float (*rows)[16]) {
    Simd::F of[2][16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      __m512i of_slot[2];
      Codes<kBits>(codes + i * code_bytes, of_slot);
      of[0][i] = _mm512_castsi512_ps(of_slot[0]);
      of[1][i] = _mm512_castsi512_ps(of_slot[1]);
    }
    for (int half = 0; half < 2; ++half) {
      Simd::Transpose(of[half]);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) Simd::Store(rows[half * 16 + i], of[half][i]);
    }
  }

  static Simd::F OfTile(const float (*rows)[16], const float* numbers) {
    const auto* words = reinterpret_cast<const int32_t*>(numbers);
    __m512i sums[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
#pragma GCC unroll 32
    for (int i = 0; i < 32; ++i) {
      const __m512i number = _mm512_set1_epi32(words[i]);
      sums[i % 2] =
          _mm512_add_epi32(sums[i % 2], _mm512_madd_epi16(_mm512_load_si512(rows[i]), number));
    }
    return _mm512_castsi512_ps(_mm512_add_epi32(sums[0], sums[1]));
  }

 private:
  template <int kBits>
  static void Codes(const std::byte* p, __m512i (&to)[2]) {
    const auto* from = reinterpret_cast<const __m256i*>(p);
    const __m256i first = _mm256_loadu_si256(from);
    if constexpr (kBits == 8) {
      to[0] = _mm512_cvtepu8_epi16(first);
      to[1] = _mm512_cvtepu8_epi16(_mm256_loadu_si256(from + 1));
    } else {
      const __m256i low = _mm256_set1_epi8(15);
      to[0] = _mm512_cvtepu8_epi16(_mm256_and_si256(first, low));
      to[1] = _mm512_cvtepu8_epi16(_mm256_and_si256(_mm256_srli_epi16(first, 4), low));
    }
  }

  __m512i numbers_[2];
};

#elif defined(__AVX2__)

// Pairs of 16 bits.
class CodeProducts : public ShortNumbers {
 public:
  static constexpr int kTileRows = 32;

  explicit CodeProducts(const float* numbers)
      : numbers_(reinterpret_cast<const __m256i*>(numbers)) {}

  template <int kBits>
  Simd::F Of(const std::byte* codes) const {
    __m256i of_slot[4];
    Codes<kBits>(codes, of_slot);
    __m256i sums = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m256i numbers = _mm256_loadu_si256(numbers_ + i);
      sums = _mm256_add_epi32(sums, _mm256_madd_epi16(of_slot[i], numbers));
    }
    return _mm256_castsi256_ps(sums);
  }

  template <int kBits>
  static void LoadTile(const std::byte* codes, int64_t code_bytes, float (*rows)[8]) {
    __m256i of_slot[8][4];
    for (int i = 0; i < 8; ++i) Codes<kBits>(codes + i * code_bytes, of_slot[i]);
    for (int quarter = 0; quarter < 4; ++quarter) {
      Simd::F of[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) of[i] = _mm256_castsi256_ps(of_slot[i][quarter]);
      Simd::Transpose(of);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) Simd::Store(rows[quarter * 8 + i], of[i]);
    }
  }

  static Simd::F OfTile(const float (*rows)[8], const float* numbers) {
    const auto* words = reinterpret_cast<const int32_t*>(numbers);
    __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
#pragma GCC unroll 32
    for (int i = 0; i < 32; ++i) {
      const __m256i row = _mm256_load_si256(reinterpret_cast<const __m256i*>(rows[i]));
      const __m256i number = _mm256_set1_epi32(words[i]);
      sums[i % 2] = _mm256_add_epi32(sums[i % 2], _mm256_madd_epi16(row, number));
    }
    return _mm256_castsi256_ps(_mm256_add_epi32(sums[0], sums[1]));
  }

 private:
  template <int kBits>
  static void Codes(const std::byte* p, __m256i (&to)[4]) {
    const auto* from = reinterpret_cast<const __m128i*>(p);
    if constexpr (kBits == 8) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) to[i] = _mm256_cvtepu8_epi16(_mm_loadu_si128(from + i));
    } else {
      const __m128i low = _mm_set1_epi8(15);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const __m128i bytes = _mm_loadu_si128(from + i);
        to[i] = _mm256_cvtepu8_epi16(_mm_and_si128(bytes, low));
        to[2 + i] = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(bytes, 4), low));
      }
    }
  }

  const __m256i* numbers_;
};

#else

// Codes and numbers of 16 bits, as the compiler sees fit.
class CodeProducts : public ShortNumbers {
 public:
  static constexpr int kTileRows = 64;

  explicit CodeProducts(const float* numbers) : numbers_(Numbers(numbers)) {}

  template <int kBits>
  Simd::F Of(const std::byte* codes) const {
    int32_t of_slot[kKvGroup];
    Codes<kBits>(codes, of_slot);
    Simd::I sums = {};
    for (int64_t i = 0; i < kKvGroup; ++i) sums[i % 4] += of_slot[i] * numbers_[i];
    return reinterpret_cast<Simd::F>(sums);
  }

  template <int kBits>
  static void LoadTile(const std::byte* codes, int64_t code_bytes, float (*rows)[4]) {
    for (int slot = 0; slot < 4; ++slot) {
      int32_t of_slot[kKvGroup];
      Codes<kBits>(codes + slot * code_bytes, of_slot);
      for (int64_t i = 0; i < kKvGroup; ++i)
        __builtin_memcpy(&rows[i][slot], &of_slot[i], sizeof(int32_t));
    }
  }

  static Simd::F OfTile(const float (*rows)[4], const float* numbers) {
    const int16_t* of_query = Numbers(numbers);
    Simd::I sums = {};
    for (int64_t i = 0; i < kKvGroup; ++i)
      sums += reinterpret_cast<Simd::I>(Simd::Load(rows[i])) * static_cast<int32_t>(of_query[i]);
    return reinterpret_cast<Simd::F>(sums);
  }

 private:
  static const int16_t* Numbers(const float* numbers) {
    return reinterpret_cast<const int16_t*>(numbers);
  }
  template <int kBits>
  static void Codes(const std::byte* p, int32_t (&to)[kKvGroup]) {
    for (int64_t i = 0; i < kKvGroup; ++i) {
      const auto byte = static_cast<int32_t>(p[kBits == 8 ? i : i % (kKvGroup / 2)]);
      to[i] = kBits == 8 ? byte : (i < kKvGroup / 2 ? byte & 15 : byte >> 4);
    }
  }

  const int16_t* numbers_;
};

#endif

}  // namespace
}  // namespace spillway::kernels
