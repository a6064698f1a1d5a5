// Formats of a cache's elements, as the attention kernels read and store them: a vector of 8
// elements at a time (kv_layout.h), a group of 64 at a time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/kv/key_means.h"
#include "kernels/kv/kv_layout.h"
#include "kernels/simd/launch.cuh"

namespace spillway::kernels {

struct VectorPlace {
  int64_t kv_head;
  int64_t slot;
  int64_t vector;  // of the head's dimensions
};

struct GroupPlace {
  int64_t kv_head;
  int64_t slot;
  int64_t group;  // of the head's dimensions
};

// Offsets of a part of a cache: a KvForm's keys, or its values.
template <typename OfForm, KvPart kOfPart>
struct KvPlaces {
  using Form = OfForm;
  static constexpr KvPart kPart = kOfPart;

  static __device__ int64_t Codes(const KvLayout& layout, int64_t kv_head, int64_t slot) {
    return KvOffset<Form>(layout, kPart, kv_head, slot);
  }
  static __device__ int64_t Ranges(const KvLayout& layout, int64_t kv_head, int64_t slot) {
    return KvRangeOffset<Form>(layout, kPart, kv_head, slot);
  }
};

// Ways to read KV. ReadOnly: earlier kernels stored it. ReadWritten: this kernel stores it.
struct ReadOnly {
  template <typename T>
  static __device__ T Get(const T* pointer) {
    return __ldg(pointer);
  }
};
struct ReadWritten {
  template <typename T>
  static __device__ T Get(const T* pointer) {
    return *pointer;
  }
};

__device__ inline void WidenPair(uint32_t word, float& low, float& high, __half) {
  __half2 pair;
  memcpy(&pair, &word, sizeof(pair));
  const float2 both = __half22float2(pair);
  low = both.x;
  high = both.y;
}

// bf16 is the upper half of a float.
__device__ inline void WidenPair(uint32_t word, float& low, float& high, __nv_bfloat16) {
  low = __uint_as_float(word << 16);
  high = __uint_as_float(word & 0xFFFF0000U);
}

// Elements of 16 bits. A default Vector is zeros.
template <typename T, typename Places>
struct KvElements {
  using Form = typename Places::Form;
  static constexpr int kBits = 16;
  static constexpr KvPart kPart = Places::kPart;
  static constexpr int kLoads = 4;  // in flight, to keep the memory busy
  using Factor = T;                 // what tensor cores multiply
  struct Vector {
    uint4 words = {0, 0, 0, 0};
  };

  template <typename Read>
  static __device__ Vector Load(const std::byte* kv, const KvLayout& layout,
                                const VectorPlace& place) {
    return {Read::Get(Address(kv, layout, place))};
  }

  static __device__ const uint4* Address(const std::byte* kv, const KvLayout& layout,
                                         const VectorPlace& place) {
    const int64_t at = Places::Codes(layout, place.kv_head, place.slot);
    return reinterpret_cast<const uint4*>(kv + at) + place.vector;
  }

  static __device__ void Widen(const Vector& vector, float (&values)[kVectorElements]) {
    const uint32_t words[4] = {vector.words.x, vector.words.y, vector.words.z, vector.words.w};
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      WidenPair(words[word], values[2 * word], values[2 * word + 1], T());
    }
  }

  // `x`: the head's first element. Called by all lanes of a warp, 16 neighbours for each group.
  static __device__ void Store(std::byte* kv, const KvLayout& layout, const GroupPlace& place,
                               const float* x) {
    const int64_t at = Places::Codes(layout, place.kv_head, place.slot);
    T* to = reinterpret_cast<T*>(kv + at);
    const int64_t first = place.group * kKvGroup + threadIdx.x % kGroupLanes;
#pragma unroll
    for (int n = 0; n < kLaneElements; ++n) {
      const int64_t d = first + n * kGroupLanes;
      if (d < layout.head_dim) to[d] = Narrow<T>(x[d]);
    }
  }
};

// Codes of 8 or 4 bits; kernels/kv/kv_code.h defines them.
template <int kOfBits, typename Places>
struct KvCodes {
  using Form = typename Places::Form;
  static constexpr int kBits = kOfBits;
  static constexpr KvPart kPart = Places::kPart;
  static constexpr int kLoads = 8;
  static constexpr int kSteps = (1 << kBits) - 1;
  using Factor = __half;
  struct Vector {
    uint32_t words[kBits / 4] = {};
    uint32_t range = 0;  // min, then scale
  };

  template <typename Read>
  static __device__ Vector Load(const std::byte* kv, const KvLayout& layout,
                                const VectorPlace& place) {
    const std::byte* codes =
        kv + Places::Codes(layout, place.kv_head, place.slot) + place.vector * VectorBytes(kBits);
    const std::byte* range = kv + Places::Ranges(layout, place.kv_head, place.slot) +
                             place.vector * kVectorElements / kKvGroup * kKvRangeStride;
    Vector vector;
    if constexpr (kBits == 8) {
      const uint2 words = Read::Get(reinterpret_cast<const uint2*>(codes));
      vector.words[0] = words.x;
      vector.words[1] = words.y;
    } else {
      vector.words[0] = Read::Get(reinterpret_cast<const uint32_t*>(codes));
    }
    vector.range = Read::Get(reinterpret_cast<const uint32_t*>(range));
    return vector;
  }

  static __device__ void Widen(const Vector& vector, float (&values)[kVectorElements]) {
    float min;
    float scale;
    WidenPair(vector.range, min, scale, __half());
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i) values[i] = fmaf(scale, Code(vector, i), min);
  }

  // Encodes as kernels/kv/kv_code.h says, step by step.
  static __device__ void Store(std::byte* kv, const KvLayout& layout, const GroupPlace& place,
                               const float* x) {
    Group group;
    group.Read(layout, place, x);
    group.Encode();
    std::byte* codes = kv + Places::Codes(layout, place.kv_head, place.slot);
    group.StoreCodes(codes + place.group * kKvGroup * kBits / 8);
    if (threadIdx.x % kGroupLanes != 0) return;
    const int64_t range =
        Places::Ranges(layout, place.kv_head, place.slot) + place.group * kKvRangeStride;
    *reinterpret_cast<uint32_t*>(kv + range) =
        __half_as_ushort(group.min) | static_cast<uint32_t>(__half_as_ushort(group.scale)) << 16;
  }

 private:
  static constexpr float kLargestHalf = 65504.0F;
  static constexpr float kRoundsToInfinity = 65520.0F;

  // A code as a float, without a conversion: 2^23 + code has the code in its last bits.
  static __device__ float Code(const Vector& vector, int i) {
    constexpr float kBase = 8388608.0F;
    uint32_t bits;
    if constexpr (kBits == 8) {
      bits = __byte_perm(vector.words[i / 4], __float_as_uint(kBase), 0x7650U + i % 4);
    } else {
      bits = (vector.words[0] >> (4 * i) & 0xFU) | __float_as_uint(kBase);
    }
    return __uint_as_float(bits) - kBase;
  }

  // A lane's elements of a group. min and scale are alike in its 16 lanes, until the first lane
  // moves min.
  struct Group {
    float x[kLaneElements];
    uint32_t code[kLaneElements];
    int size;
    __half min;
    __half scale;

    __device__ void Read(const KvLayout& layout, const GroupPlace& place, const float* head) {
      const int64_t begin = place.group * kKvGroup;
      const int64_t left = layout.head_dim - begin;
      size = static_cast<int>(left < kKvGroup ? left : kKvGroup);
#pragma unroll
      for (int n = 0; n < kLaneElements; ++n) x[n] = Has(n) ? head[begin + Element(n)] : 0.0F;
    }

    __device__ int Element(int n) const {
      return n * kGroupLanes + static_cast<int>(threadIdx.x) % kGroupLanes;
    }
    __device__ bool Has(int n) const { return Element(n) < size; }

    __device__ void Encode() {
      FindRange();
      const float from = __half2float(min);
      const float step = __half2float(scale);
      float sum = 0.0F;
      float sum_of_codes = 0.0F;
#pragma unroll
      for (int n = 0; n < kLaneElements; ++n) {
        code[n] = Has(n) && step != 0.0F ? CodeOf(x[n], from, step) : 0;
        sum = __fadd_rn(sum, x[n]);
        sum_of_codes += static_cast<float>(code[n]);
      }
      sum = SumOverLanes<kGroupLanes>(sum);
      sum_of_codes = SumOverLanes<kGroupLanes>(sum_of_codes);  // exact
      // Moves min in the lane that stores it only.
      if (step != 0.0F && threadIdx.x % kGroupLanes == 0) min = MovedMin(sum, sum_of_codes);
    }

    __device__ void FindRange() {
      float lowest = INFINITY;
      float highest = -INFINITY;
      float is_nan = 0.0F;
#pragma unroll
      for (int n = 0; n < kLaneElements; ++n) {
        if (!Has(n)) continue;
        lowest = fminf(lowest, x[n]);
        highest = fmaxf(highest, x[n]);
        if (x[n] != x[n]) is_nan = 1.0F;
      }
      lowest = -MaxOverLanes<kGroupLanes>(-lowest);
      highest = MaxOverLanes<kGroupLanes>(highest);
      is_nan = MaxOverLanes<kGroupLanes>(is_nan);
      if (is_nan != 0.0F || lowest <= -kRoundsToInfinity || highest >= kRoundsToInfinity) {
        min = __ushort_as_half(0x7E00);  // NaN
        scale = __ushort_as_half(0);
        return;
      }
      lowest = fmaxf(lowest, -kLargestHalf) + 0.0F;  // one zero, not two
      highest = fminf(highest, kLargestHalf);
      min = __float2half_rd(lowest);
      const float range = __fsub_rn(highest, __half2float(min)) + 0.0F;
      scale = __float2half_ru(__fdiv_rn(range, static_cast<float>(kSteps)));
    }

    static __device__ uint32_t CodeOf(float value, float from, float step) {
      const float cut = fminf(fmaxf(value, -kLargestHalf), kLargestHalf);
      const float code = rintf(__fdiv_rn(__fsub_rn(cut, from), step));
      return static_cast<uint32_t>(fminf(fmaxf(code, 0.0F), static_cast<float>(kSteps)));
    }

    // KvMovedMin.
    __device__ __half MovedMin(float sum, float sum_of_codes) const {
      const double step = static_cast<double>(__half2float(scale));
      const double from = static_cast<double>(__half2float(min));
      const double wanted =
          (static_cast<double>(sum) - step * static_cast<double>(sum_of_codes)) / size;
      const __half moved = __float2half_rn(static_cast<float>(wanted));
      const double to = static_cast<double>(__half2float(moved));
      const bool is_nearer = fabs(wanted - to) < fabs(wanted - from);
      return is_nearer && fabs(to - from) <= 0.5 * step ? moved : min;
    }

    // `to`: the group's first code.
    __device__ void StoreCodes(std::byte* to) const {
      if constexpr (kBits == 8) {
#pragma unroll
        for (int n = 0; n < kLaneElements; ++n) {
          if (Has(n)) to[Element(n)] = std::byte(code[n]);
        }
      } else {
        StoreNibbles(to);
      }
    }

    __device__ void StoreNibbles(std::byte* to) const {
      const int lane = static_cast<int>(threadIdx.x) % kGroupLanes;
      if (size == kKvGroup) {
        const uint32_t word = code[0] | code[1] << 4 | code[2] << 8 | code[3] << 12;
        reinterpret_cast<uint16_t*>(to)[lane] = static_cast<uint16_t>(word);
      }
      // A shorter group's neighbours share a byte. All lanes exchange: of a warp's two groups one
      // may be whole.
#pragma unroll
      for (int n = 0; n < kLaneElements; ++n) {
        const uint32_t next = __shfl_xor_sync(kAllLanes, code[n], 1);
        if (size < kKvGroup && Has(n) && lane % 2 == 0) {
          to[Element(n) / 2] = std::byte(code[n] | next << 4);
        }
      }
    }
  };
};

// A cache's formats: of its keys and of its values.
template <typename OfKeys, typename OfValues, typename OfForm>
struct KvFormat {
  using Keys = OfKeys;
  using Values = OfValues;
  using Form = OfForm;
  // Loads in flight where keys and values are read together.
  static constexpr int kLoads = Keys::kLoads < Values::kLoads ? Keys::kLoads : Values::kLoads;
};

// Stores a token's K and V of several heads: group by group, 16 threads each; one half of a block's
// warps the keys, the other the values. Called by all threads of a block.
template <typename Format, int kThreads>
struct TokenStore {
  static constexpr int kAtOnce = kThreads / 2 / kGroupLanes;

  std::byte* kv;
  const KvLayout& layout;
  int64_t slot;
  int64_t first_head;
  int64_t num_heads;
  const float* k;  // of the first head
  const float* v;

  __device__ void Run() const {
    if (threadIdx.x < kThreads / 2) return StoreAll<typename Format::Keys>(k);
    StoreAll<typename Format::Values>(v);
  }

 private:
  template <typename Part>
  __device__ void StoreAll(const float* x) const {
    const int64_t groups = KvGroups(layout.head_dim);
    const int64_t count = num_heads * groups;
    for (int64_t first = 0; first < count; first += kAtOnce) {
      // Lanes past the end store the last group again: shuffles need whole warps.
      const int64_t own = first + threadIdx.x % (kThreads / 2) / kGroupLanes;
      const int64_t index = own < count ? own : count - 1;
      const int64_t head = index / groups;
      Part::Store(kv, layout, {first_head + head, slot, index % groups},
                  x + head * layout.head_dim);
    }
  }
};

// One KV head of a cache.
struct HeadPlace {
  KvLayout layout;
  int64_t kv_head;
};

// K and V of a token of one head from slot to slot, as they are stored, word by word.
template <typename Form>
struct TokenCopy {
  // Elements come 16 bytes at a time, but not where they share a block with codes: a word has one
  // size.
  using Value = std::conditional_t<Form::kBits == KvBits(16), uint4, uint32_t>;
  static constexpr int64_t kWordBytes = sizeof(Value);

  HeadPlace from;
  HeadPlace to;

  // Words of K and V: elements, or codes and ranges.
  __device__ int64_t words() const { return Words(KvPart::kKey) + Words(KvPart::kValue); }

  __device__ void Word(const std::byte* from_kv, int64_t from_slot, std::byte* to_kv,
                       int64_t to_slot, int64_t index) const {
    *reinterpret_cast<Value*>(to_kv + Offset(to, to_slot, index)) =
        *reinterpret_cast<const Value*>(from_kv + Offset(from, from_slot, index));
  }

 private:
  __device__ int64_t Words(KvPart part) const {
    return KvTokenBytes(to.layout.head_dim, Form::Bits(part)) / kWordBytes;
  }
  __device__ int64_t Offset(const HeadPlace& of, int64_t slot, int64_t index) const {
    const KvLayout& layout = of.layout;
    const int64_t of_keys = Words(KvPart::kKey);
    const KvPart part = index < of_keys ? KvPart::kKey : KvPart::kValue;
    const int64_t word = part == KvPart::kKey ? index : index - of_keys;
    const int64_t of_codes = KvCodeBytes(layout.head_dim, Form::Bits(part)) / kWordBytes;
    if (word < of_codes) return KvOffset<Form>(layout, part, of.kv_head, slot) + word * kWordBytes;
    return KvRangeOffset<Form>(layout, part, of.kv_head, slot) + (word - of_codes) * kKvRangeStride;
  }
};

// Format of a part of a cache: codes of kBits, or elements of type T.
template <int kBits, typename T, typename Places>
using KvPartFormat =
    std::conditional_t<kBits == 16, KvElements<T, Places>, KvCodes<kBits == 4 ? 4 : 8, Places>>;

template <int kKeyBits, int kValueBits, typename T = __half>
using KvFormatOf =
    KvFormat<KvPartFormat<kKeyBits, T, KvPlaces<KvForm<kKeyBits, kValueBits>, KvPart::kKey>>,
             KvPartFormat<kValueBits, T, KvPlaces<KvForm<kKeyBits, kValueBits>, KvPart::kValue>>,
             KvForm<kKeyBits, kValueBits>>;

template <int kKeyBits, typename Launch>
void WithValueBits(int bits, const Launch& launch) {
  if (bits == 8) return launch(KvFormatOf<kKeyBits, 8>());
  if (bits == 4) return launch(KvFormatOf<kKeyBits, 4>());
  launch(KvFormatOf<kKeyBits, 16>());
}

// Calls `launch` with the format of a cache. dtype: of elements where both K and V have 16 bits.
template <typename Launch>
void WithFormat(DType dtype, KvBits bits, const Launch& launch) {
  if (bits.key == 8) return WithValueBits<8>(bits.value, launch);
  if (bits.key == 4) return WithValueBits<4>(bits.value, launch);
  const bool brain = !bits.coded() && dtype == DType::kBF16;
  if (brain) return launch(KvFormatOf<16, 16, __nv_bfloat16>());
  WithValueBits<16>(bits.value, launch);
}

// Calls `launch` with the number of lanes, as a type, that together hold a vector each of a head of
// head_dim elements. Requires: head_dim <= 256.
template <typename Launch>
void WithLanes(int64_t head_dim, const Launch& launch) {
  const int64_t vectors = (head_dim + kVectorElements - 1) / kVectorElements;
  if (vectors <= 4) return launch(std::integral_constant<int, 4>());
  if (vectors <= 8) return launch(std::integral_constant<int, 8>());
  if (vectors <= 16) return launch(std::integral_constant<int, 16>());
  launch(std::integral_constant<int, 32>());
}

// Adds the mean at `position` to a vector of a key. Part: a format's keys or its values.
template <typename Part>
__device__ void AddMean(const KeyMeans& means, const VectorPlace& place, int64_t position,
                        int64_t head_dim, float (&key)[kVectorElements]) {
  if constexpr (Part::kPart == KvPart::kKey && Part::kBits == 4) {
    if (!means.exist()) return;
    const float* mean =
        means.At(place.kv_head, position, head_dim) + place.vector * kVectorElements;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 words = __ldg(reinterpret_cast<const uint4*>(mean) + half);
      key[4 * half] += __uint_as_float(words.x);
      key[4 * half + 1] += __uint_as_float(words.y);
      key[4 * half + 2] += __uint_as_float(words.z);
      key[4 * half + 3] += __uint_as_float(words.w);
    }
  }
}

}  // namespace spillway::kernels
