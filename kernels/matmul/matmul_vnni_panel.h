// Matmul of quantised weights with AVX-512 VNNI, in the arithmetic of matmul_groups.h: where
// a group has one step the bits that AMX gives. Sums are exact, so that few rows may add along k
// and many rows across outputs:
// - up to 2 rows: a register holds 32 codes each of two outputs, and sums are folded at the end of
//   a group; 7 operations for 64 weights of 4 bits, where dequantising them takes 13;
// - more: codes are transposed once for all rows, so that lanes are outputs, and four k of a row
//   are broadcast: 2 operations for 64 products of two bytes of x, one of one byte, which fp32
//   makes in 4;
// - groups of parts: as many rows, for any number.
// Private to the files for the unit.
#pragma once

#include <immintrin.h>

#include "kernels/convert/quantise.h"
#include "kernels/matmul/matmul_finish.h"
#include "kernels/matmul/matmul_groups.h"
#include "kernels/matmul/matmul_isa.h"
#include "kernels/matmul/matmul_panel.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kChunkGroups = 8;  // 8 KiB of codes as bytes, and 8 of a block of x
constexpr int64_t kFewRows = 2;
constexpr int64_t kHalfGroup = kGroupWeights / 2;
constexpr float kMxfp4Middle = 12.0F;  // the code of 0, of doubled numbers

// Scratch of a worker.
struct Scratch {
  __m512i codes[kChunkGroups][16];              // [group][4 k each], lanes are outputs
  uint32_t heads[kChunkGroups][3][kPanelOuts];  // words, as they are stored
  Heads parts[kChunkGroups][kVnniMostParts];    // of the same
  float sums[kSimdTileRows][kPanelOuts];
};
static_assert(sizeof(Scratch) <= kSimdScratchBytes);

// One group of a block of x, as Pack makes it.
template <CodedX kX>
struct GroupOfX {
  const std::byte* bytes;
  int64_t block_rows;

  // The high bytes of two, or the only ones, and the low ones.
  const std::byte* First(int64_t row) const { return bytes + row * XBytes(kX) * kGroupWeights; }
  const std::byte* Low(int64_t row) const { return First(row) + kGroupWeights; }
  float Scale(int64_t row) const { return Floats()[row]; }
  float Total(int64_t part, int64_t row) const { return Floats()[(1 + part) * block_rows + row]; }

 private:
  const float* Floats() const {
    return reinterpret_cast<const float*>(bytes + block_rows * XBytes(kX) * kGroupWeights);
  }
};

// 32 codes each of two outputs, low nibbles and high ones, or first and second half.
struct Codes {
  __m512i first;
  __m512i second;
};

inline __m512i LoadTwo(const std::byte* a, const std::byte* b) {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

template <DType kType>
inline Codes LoadCodes(const std::byte* a, const std::byte* b) {
  if constexpr (CodeBits(kType) == 8) {
    return {LoadTwo(a, b), LoadTwo(a + kHalfGroup, b + kHalfGroup)};
  } else {
    const __m512i both = LoadTwo(a, b);
    const __m512i nibble = _mm512_set1_epi8(15);
    return {_mm512_and_si512(both, nibble), _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble)};
  }
}

// 32 bytes of x for each of the two outputs.
inline __m512i TwiceX(const std::byte* x) {
  return _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
}

inline __m512i MulAdd(__m512i sums, __m512i codes, __m512i x) {
  return _mm512_dpbusd_epi32(sums, codes, x);
}

inline __m512i MulCodes(__m512i sums, const Codes& codes, const std::byte* x) {
  return MulAdd(MulAdd(sums, codes.first, TwiceX(x)), codes.second, TwiceX(x + kHalfGroup));
}

// Sums of 8 lanes each: lane i of the result is that of output i, where v[p] holds output
// FirstOf(p) in its lower half and the fourth one after it in its upper half.
constexpr int FirstOf(int pair) { return pair < 4 ? pair : pair + 4; }

inline __m512i Fold(const __m512i (&v)[8]) {
  __m512i t[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_add_epi32(_mm512_shuffle_i32x4(v[i], v[i + 4], 0x88),
                            _mm512_shuffle_i32x4(v[i], v[i + 4], 0xDD));
  }
  const __m512i a =
      _mm512_add_epi32(_mm512_unpacklo_epi64(t[0], t[1]), _mm512_unpackhi_epi64(t[0], t[1]));
  const __m512i b =
      _mm512_add_epi32(_mm512_unpacklo_epi64(t[2], t[3]), _mm512_unpackhi_epi64(t[2], t[3]));
  const __m512 even = _mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), 0x88);
  const __m512 odd = _mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), 0xDD);
  return _mm512_add_epi32(_mm512_castps_si512(even), _mm512_castps_si512(odd));
}

// y of 16 outputs after one more group, or part of one.
template <CodedX kX>
inline __m512 AddPart(__m512 y, __m512 sum, const Heads& heads, const GroupOfX<kX>& x, int64_t part,
                      int64_t row) {
  const __m512 stepped = _mm512_mul_ps(sum, heads.step);
  y = _mm512_fmadd_ps(stepped, _mm512_set1_ps(x.Scale(row)), y);
  return _mm512_fmadd_ps(heads.minimum, _mm512_set1_ps(x.Total(part, row)), y);
}

// The lower or upper half of each word, an fp16.
inline __m512 HalfOf(const uint32_t* words, int64_t half) {
  const __m512i both = _mm512_loadu_si512(words);
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(half == 0 ? both : _mm512_srli_epi32(both, 16)));
}

// Byte `byte` of each word, signed.
inline __m512 ByteOf(const uint32_t* words, int64_t byte) {
  const __m512i all = _mm512_loadu_si512(words);
  const auto left = static_cast<unsigned>(24 - 8 * byte);
  return _mm512_cvtepi32_ps(
      _mm512_srai_epi32(_mm512_sll_epi32(all, _mm_cvtsi32_si128(static_cast<int>(left))), 24));
}

// Minimum and step of a part of 16 groups.
template <DType kType>
inline Heads HeadsOfPart(const uint32_t (&heads)[3][kPanelOuts], int64_t part) {
  if constexpr (PartsOfGroup(kType) == 1) {
    return LoadHeads<kType>(heads[0]);
  } else if constexpr (HasCodedScales(kType)) {
    constexpr int64_t kCount = NumCodedScales(kType);
    const int64_t minimum = kCount + part;
    const __m512 step = _mm512_mul_ps(HalfOf(heads[0], 0), ByteOf(heads[1], part));
    const __m512 less =
        _mm512_mul_ps(HalfOf(heads[0], 1), ByteOf(heads[1 + minimum / 4], minimum % 4));
    return {_mm512_sub_ps(_mm512_setzero_ps(), less), step};
  } else if constexpr (HasTwoMinimums(kType)) {
    return {HalfOf(heads[kMinimumsAt / 4], part), HalfOf(heads[0], part)};
  } else {
    constexpr bool kAreNumbers = kType == DType::kMxfp4;
    constexpr float kMiddle = kAreNumbers ? kMxfp4Middle : static_cast<float>(MiddleCode(kType));
    const __m512 step =
        _mm512_mul_ps(HalfOf(heads[0], part), _mm512_set1_ps(kAreNumbers ? 0.5F : 1.0F));
    return {_mm512_mul_ps(step, _mm512_set1_ps(-kMiddle)), step};
  }
}

// Place among the 16 words of BytesOf of those that x has as word `word`: of a group of parts the
// codes of weights 4 word and the three behind it.
template <DType kType>
constexpr int PlaceOfWord(int word) {
  if (PartsOfGroup(kType) == 1 || CodeBits(kType) == 8) return word;
  constexpr int kByteOfPart[4] = {0, 2, 1, 3};  // of the words that are stored
  return 4 * (word % 4) + kByteOfPart[word / 4];
}

template <DType kType>
inline __m512i BytesOf(const std::byte* codes) {
  __m512i bytes = UnpackCodes<kType>(codes);
  if constexpr (PartsOfGroup(kType) == 1 || CodeBits(kType) == 8) return bytes;
  if constexpr (CodeBits(kType) == 6) {
    // Each half-word's nibbles to the bytes of a word: the lower two bits of one are the upper bits
    // of the low nibble that was at that byte, the others of the high one.
    const __m128i halfs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + kHalfGroup));
    __m256i highs = _mm256_cvtepu16_epi32(halfs);
    highs = _mm256_and_si256(_mm256_or_si256(highs, _mm256_slli_epi32(highs, 8)),
                             _mm256_set1_epi32(0x00FF00FF));
    highs =
        _mm256_and_si256(_mm256_or_si256(highs, _mm256_slli_epi32(highs, 4)), _mm256_set1_epi8(15));
    const __m512i twos = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
    const __m512i both = _mm512_srlv_epi32(_mm512_broadcast_i64x4(highs), twos);
    bytes =
        _mm512_or_si512(bytes, _mm512_slli_epi32(_mm512_and_si512(both, _mm512_set1_epi8(3)), 4));
  }
  // Byte b of four neighbouring words, which are of one part, to word b.
  const __m512i together =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  bytes = _mm512_shuffle_epi8(bytes, together);
  if constexpr (kType != DType::kMxfp4) return bytes;
  const __m512i doubles = _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  return _mm512_shuffle_epi8(doubles, bytes);
}

// A panel of 16 outputs, whose groups are taken a chunk at a time.
template <DType kType, CodedX kX>
struct Panel {
  static constexpr int64_t kBytes = GroupBytes(kType);
  static constexpr int kParts = static_cast<int>(PartsOfGroup(kType));
  static constexpr int kPartWords = 16 / kParts;

  const MatmulTile& tile;
  const PanelRows<std::byte>& rows;
  const std::byte* next;  // 16 rows that this worker likely reads next
  Scratch& scratch;

  GroupOfX<kX> X(int64_t block, int64_t group) const {
    return {tile.packed + (block * NumGroups(tile.in) + group) *
                              VnniGroupXBytes(tile.total_rows, PartsOfGroup(kType), kX),
            VnniBlockRows(tile.total_rows)};
  }
  const std::byte* CodesOf(int64_t out, int64_t group) const {
    return rows.weight[out] + group * kBytes + GroupHeadBytes(kType);
  }

  // Prefetches as many bytes of the panel that comes next as a group takes, in the order of memory.
  [[gnu::always_inline]] inline void Prefetch(int64_t group) const {
    const std::byte* coming = next + group * kPanelOuts * kBytes;
    for (int64_t at = 0; at < kPanelOuts * kBytes; at += 64)
      _mm_prefetch(reinterpret_cast<const char*>(coming + at), _MM_HINT_T1);
  }

  void CopyHeads(int64_t begin, int64_t end) const {
    for (int64_t group = begin; group < end; ++group) {
#pragma GCC unroll 16
      for (int out = 0; out < kPanelOuts; ++out) {
        const std::byte* head = rows.weight[out] + group * kBytes;
        for (int word = 0; word < GroupHeadBytes(kType) / 4; ++word)
          __builtin_memcpy(&scratch.heads[group - begin][word][out], head + 4 * word, 4);
      }
    }
  }

  // All groups, for rows [0, kRows) of the call.
  template <int kRows>
  void MulFew() const {
    __m512 y[kRows];
#pragma GCC unroll 2
    for (int row = 0; row < kRows; ++row) y[row] = _mm512_setzero_ps();
    const int64_t num_groups = NumGroups(tile.in);
    for (int64_t begin = 0; begin < num_groups; begin += kChunkGroups) {
      const int64_t end = MinOf(num_groups, begin + kChunkGroups);
      CopyHeads(begin, end);
      for (int64_t group = begin; group < end; ++group) {
        Prefetch(group);
        MulGroup<kRows>(group, LoadHeads<kType>(scratch.heads[group - begin][0]), y);
      }
    }
    for (int row = 0; row < kRows; ++row) _mm512_storeu_ps(scratch.sums[row], y[row]);
  }

  template <int kRows>
  [[gnu::always_inline]] inline void MulGroup(int64_t group, const Heads& heads,
                                              __m512 (&y)[kRows]) const {
    const GroupOfX<kX> x = X(0, group);
    __m512i sums[kRows][8];
#pragma GCC unroll 8
    for (int pair = 0; pair < 8; ++pair) {
      const int out = FirstOf(pair);
      const Codes codes = LoadCodes<kType>(CodesOf(out, group), CodesOf(out + 4, group));
#pragma GCC unroll 2
      for (int row = 0; row < kRows; ++row) {
        sums[row][pair] = MulCodes(_mm512_setzero_si512(), codes, x.First(row));
        if constexpr (kX == CodedX::kTwoBytes)
          sums[row][pair] = MulCodes(_mm512_slli_epi32(sums[row][pair], 8), codes, x.Low(row));
      }
    }
#pragma GCC unroll 2
    for (int row = 0; row < kRows; ++row)
      y[row] = AddPart(y[row], _mm512_cvtepi32_ps(Fold(sums[row])), heads, x, 0, row);
  }

  // Unpacks heads, and codes to bytes, transposed: words of four k, lanes are outputs.
  void Unpack(int64_t begin, int64_t end) const {
    for (int64_t group = begin; group < end; ++group) {
      Prefetch(group);
      __m512i words[16];
#pragma GCC unroll 16
      for (int out = 0; out < kPanelOuts; ++out) {
        words[out] = BytesOf<kType>(CodesOf(out, group));
      }
      Transpose(words);
#pragma GCC unroll 16
      for (int word = 0; word < 16; ++word) scratch.codes[group - begin][word] = words[word];
      for (int part = 0; part < kParts; ++part) {
        scratch.parts[group - begin][part] = HeadsOfPart<kType>(scratch.heads[group - begin], part);
      }
    }
  }

  // The chunk's groups for kRows rows of a block, whose sums lie at `sums`.
  template <int kRows>
  void MulBlock(int64_t block, int64_t begin, int64_t end, float (*sums)[kPanelOuts]) const {
    __m512 y[kRows];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row)
      y[row] = begin == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(sums[row]);
    for (int64_t group = begin; group < end; ++group) {
      const GroupOfX<kX> x = X(block, group);
      for (int part = 0; part < kParts; ++part) {
        __m512i first[kRows];  // sums of the high bytes, or of half of the words
        __m512i second[kRows];
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row) first[row] = second[row] = _mm512_setzero_si512();
        constexpr int kStep = kX == CodedX::kTwoBytes ? 1 : 2;
#pragma GCC unroll 4
        for (int word = part * kPartWords; word < (part + 1) * kPartWords; word += kStep) {
          const __m512i* codes = scratch.codes[group - begin];
          const __m512i these = codes[PlaceOfWord<kType>(word)];
          const __m512i others = codes[PlaceOfWord<kType>(word + kStep - 1)];
#pragma GCC unroll 8
          for (int row = 0; row < kRows; ++row) {
            const std::byte* of_first = x.First(row) + 4 * word;
            const std::byte* of_second =
                kX == CodedX::kTwoBytes ? x.Low(row) + 4 * word : of_first + 4;
            first[row] = MulAdd(first[row], these, FourX(of_first));
            second[row] = MulAdd(second[row], others, FourX(of_second));
          }
        }
        const Heads& heads = scratch.parts[group - begin][part];
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row)
          y[row] = AddPart(y[row], SumOf<kX>(first[row], second[row]), heads, x, part, row);
      }
    }
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) _mm512_storeu_ps(sums[row], y[row]);
  }

  void MulBlock(int64_t num_rows, int64_t block, int64_t begin, int64_t end,
                float (*sums)[kPanelOuts]) const {
    switch (num_rows) {
      case 1:
        return MulBlock<1>(block, begin, end, sums);
      case 2:
        return MulBlock<2>(block, begin, end, sums);
      case 3:
        return MulBlock<3>(block, begin, end, sums);
      case 4:
        return MulBlock<4>(block, begin, end, sums);
      case 5:
        return MulBlock<5>(block, begin, end, sums);
      case 6:
        return MulBlock<6>(block, begin, end, sums);
      case 7:
        return MulBlock<7>(block, begin, end, sums);
      default:
        return MulBlock<8>(block, begin, end, sums);
    }
  }

  // All groups, for the tile's rows.
  void MulMany() const {
    const int64_t num_groups = NumGroups(tile.in);
    for (int64_t begin = 0; begin < num_groups; begin += kChunkGroups) {
      const int64_t end = MinOf(num_groups, begin + kChunkGroups);
      CopyHeads(begin, end);
      Unpack(begin, end);
      for (int64_t row = 0; row < tile.num_rows; row += kVnniBlockRows) {
        MulBlock(MinOf(kVnniBlockRows, tile.num_rows - row),
                 (tile.row_begin + row) / kVnniBlockRows, begin, end, scratch.sums + row);
      }
    }
  }

 private:
  static __m512i FourX(const std::byte* x) {
    int32_t four;
    __builtin_memcpy(&four, x, sizeof(four));
    return _mm512_set1_epi32(four);
  }
};

template <DType kType, CodedX kX>
void MulTile(const MatmulTile& tile) {
  Scratch& scratch = *reinterpret_cast<Scratch*>(tile.scratch);
  const int64_t row_bytes = RowBytes(kType, tile.in);
  const int64_t end = tile.out_begin + tile.num_outs;
  for (int64_t out = tile.out_begin; out < end; out += kPanelOuts) {
    const PanelRows<std::byte> rows(tile, row_bytes, out);
    const int64_t next_out = out + kPanelOuts < end ? out + kPanelOuts : tile.next_out_begin;
    const std::byte* next =
        static_cast<const std::byte*>(tile.piece->weight) + next_out * row_bytes;
    const Panel<kType, kX> panel = {tile, rows, next, scratch};
    if (PartsOfGroup(kType) > 1 || tile.total_rows > kFewRows) {
      panel.MulMany();
    } else if constexpr (PartsOfGroup(kType) == 1) {
      tile.total_rows == 1 ? panel.template MulFew<1>() : panel.template MulFew<2>();
    }
    for (int64_t row = 0; row < tile.num_rows; ++row) {
      Finish(tile, tile.row_begin + row, out, _mm512_loadu_ps(scratch.sums[row]),
             MinOf(kPanelOuts, end - out));
    }
  }
}

template <CodedX kX>
void Pack(const PackTask& task) {
  const int64_t block_rows = VnniBlockRows(task.rows);
  const auto parts = static_cast<int>(PartsOfGroup(task.weight_dtype));
  const int64_t group_bytes = VnniGroupXBytes(task.rows, parts, kX);
  const int64_t first = task.block * kVnniBlockRows;
  std::byte* block = task.packed + task.block * NumGroups(task.in) * group_bytes;
  for (int64_t group = task.step_begin; group < task.step_end; ++group) {
    std::byte* to = block + group * group_bytes;
    float* scales = reinterpret_cast<float*>(to + block_rows * XBytes(kX) * kGroupWeights);
    const int64_t n = MinOf(kGroupWeights, task.in - group * kGroupWeights);
    for (int64_t row = 0; row < MinOf(block_rows, task.rows - first); ++row) {
      const GroupX x =
          RoundX<kX>(task.x + (first + row) * task.x_stride + group * kGroupWeights, n);
      std::byte* bytes = to + row * XBytes(kX) * kGroupWeights;
      if constexpr (kX == CodedX::kTwoBytes) {
        __m512i high[4];
        HighBytes(x.part, high);
        _mm512_storeu_si512(bytes, LowBytes(high, task.weight_dtype));
        bytes += kGroupWeights;
      }
      _mm512_storeu_si512(bytes, LowBytes(x.part, task.weight_dtype));
      scales[row] = x.scale;
      for (int part = 0; part < parts; ++part)
        scales[(1 + part) * block_rows + row] = x.Total(part * 4 / parts, (part + 1) * 4 / parts);
    }
  }
}

template <CodedX kX>
void MulTileOf(const MatmulTile& tile) {
  const DType dtype = tile.piece->weight_dtype;
  if (PartsOfGroup(dtype) == 1)
    return WithCodes(dtype, [&]<DType kType>() { MulTile<kType, kX>(tile); });
  WithParts(dtype, [&]<DType kType>() { MulTile<kType, kX>(tile); });
}

}  // namespace
}  // namespace spillway::kernels
