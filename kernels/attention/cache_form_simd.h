// Forms of a cache at compile time: bits of an element of K, and of V. Private to attention_simd.h
// and attention_decode_simd.h: compiled once per instruction set.
#pragma once

#include "kernels/attention/attention.h"
#include "spillway/dtype.h"
#include "spillway/kv_block.h"

namespace spillway::kernels {
namespace {

// kKv: type of the elements of 16 bits.
template <DType kKv, int kKeyBits, int kValueBits>
struct CacheForm {
  static constexpr DType kDType = kKv;
  static constexpr KvBits kBoth = {kKeyBits, kValueBits};
  static constexpr int64_t kBlockSlots = KvBlockSlots(kBoth);
  template <bool kValues>
  static constexpr int kBits = kValues ? kValueBits : kKeyBits;
};

template <int kKeyBits, typename Launch>
inline void WithValueBits(const AttentionTensors& args, const Launch& launch) {
  if (args.kv_bits.value == 8) return launch(CacheForm<DType::kF16, kKeyBits, 8>());
  if (args.kv_bits.value == 4) return launch(CacheForm<DType::kF16, kKeyBits, 4>());
  launch(CacheForm<DType::kF16, kKeyBits, 16>());
}

// Calls `launch` with the form of the arguments' cache.
template <typename Launch>
inline void WithForm(const AttentionTensors& args, const Launch& launch) {
  if (args.kv_bits.key == 8) return WithValueBits<8>(args, launch);
  if (args.kv_bits.key == 4) return WithValueBits<4>(args, launch);
  const bool brain = !args.kv_bits.coded() && args.kv_dtype == DType::kBF16;
  if (brain) return launch(CacheForm<DType::kBF16, 16, 16>());
  WithValueBits<16>(args, launch);
}

}  // namespace
}  // namespace spillway::kernels
