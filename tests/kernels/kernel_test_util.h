// Random inputs and buffers for the kernel tests.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/convert/convert.h"
#include "spillway/dtype.h"
#include "spillway/kv_block.h"
#include "src/base/isa.h"

namespace spillway::kernels {

inline constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();
inline constexpr uint16_t kPoison16 = 0x7FFF;  // a NaN both as fp16 and as bf16

// 64-byte aligned bytes; not zeroed, so that sanitizers and poison see what a kernel forgot.
class AlignedBytes {
 public:
  explicit AlignedBytes(int64_t size)
      : size_(static_cast<size_t>(size)),
        data_(static_cast<std::byte*>(::operator new(size_, kAlign))) {
    std::memset(data_.get(), 0xFF, size_);  // NaN in every type
  }
  std::span<std::byte> span() { return {data_.get(), size_}; }
  uint16_t* words() { return reinterpret_cast<uint16_t*>(data_.get()); }
  std::byte* data() { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlign{64};
  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, kAlign); }
  };
  size_t size_;
  std::unique_ptr<std::byte, Free> data_;
};

inline std::vector<float> RandomFloats(int64_t count, uint32_t seed, float scale = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

inline AlignedBytes RandomWeights(int64_t count, DType dtype, uint32_t seed, float scale = 0.05F) {
  const std::vector<float> values = RandomFloats(count, seed, scale);
  AlignedBytes weights(count * 2);
  for (size_t i = 0; i < values.size(); ++i) {
    weights.words()[i] = dtype == DType::kF16 ? FloatToHalf(values[i]) : FloatToBFloat16(values[i]);
  }
  return weights;
}

// The frequencies of rotary positions, the first of which turns one radian a position.
inline std::vector<float> InverseFrequencies(int64_t dims) {
  std::vector<float> frequencies;
  for (int64_t pair = 0; pair < dims / 2; ++pair) {
    const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(dims);
    frequencies.push_back(static_cast<float>(std::pow(10000.0, exponent)));
  }
  return frequencies;
}

inline std::vector<uint32_t> Bits(std::span<const float> values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

struct IsaAndDType {
  Isa isa;
  DType dtype;
};

inline void PrintTo(const IsaAndDType& param, std::ostream* out) {
  *out << IsaName(param.isa) << "_" << DTypeName(param.dtype);
}

inline std::string ParamName(const testing::TestParamInfo<IsaAndDType>& info) {
  return std::string(IsaName(info.param.isa)) + "_" + std::string(DTypeName(info.param.dtype));
}

inline std::string IsaParamName(const testing::TestParamInfo<Isa>& info) {
  return std::string(IsaName(info.param));
}

// Instruction sets whose products are tested: those of this machine or, where tiles are memory, the
// ones with tiles.
#if defined(SPILLWAY_SOFT_TILES)
inline constexpr bool kTilesAreMemory = true;
#else
inline constexpr bool kTilesAreMemory = false;
#endif
inline std::vector<Isa> ProductIsas(CpuCompute compute) {
  if (!kTilesAreMemory) return SupportedIsas(compute);
  // The files use instructions of these.
  if (SupportedIsas(CpuCompute::kBf16).empty() || !__builtin_cpu_supports("avx512vbmi")) return {};
  if (compute == CpuCompute::kInt8) return {Isa::kAmxInt8};
  return {compute == CpuCompute::kBf16 ? Isa::kAmxBf16 : Isa::kAmx};
}

// Supported instruction sets that attention has forms for; a higher one takes that of kAvx512Vnni.
inline std::vector<Isa> AttentionIsas() {
  std::vector<Isa> isas = SupportedIsas();
  std::erase_if(isas, [](Isa isa) { return isa > Isa::kAvx512Vnni; });
  return isas;
}

// Each supported instruction set with fp16 and bf16.
inline std::vector<IsaAndDType> AllCases() {
  std::vector<IsaAndDType> cases;
  for (const Isa isa : SupportedIsas()) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) cases.push_back({isa, dtype});
  }
  return cases;
}

// Storage of K and V: in 16 bits of a type, or in codes.
struct KvStorage {
  DType dtype = DType::kF16;
  KvBits bits = {};

  std::string name() const {
    if (!bits.coded()) return std::string(DTypeName(dtype));
    const std::string of_keys = "kv" + std::to_string(bits.key);
    return bits.key == bits.value ? of_keys : of_keys + "_" + std::to_string(bits.value);
  }
};

struct IsaAndKv {
  Isa isa;
  KvStorage kv;
};

inline void PrintTo(const IsaAndKv& param, std::ostream* out) {
  *out << IsaName(param.isa) << "_" << param.kv.name();
}

inline std::string KvParamName(const testing::TestParamInfo<IsaAndKv>& info) {
  return std::string(IsaName(info.param.isa)) + "_" + info.param.kv.name();
}

// K and V in one form, and each form beside another.
inline constexpr KvStorage kKvStorages[] = {
    {DType::kF16, 16},     {DType::kBF16, 16},     {DType::kF16, 8},      {DType::kF16, 4},
    {DType::kF16, {8, 4}}, {DType::kF16, {4, 16}}, {DType::kF16, {16, 8}}};

// Each form of attention with each storage of KV; that of VNNI with keys of codes, for which alone
// it differs; where there are faster forms, the portable one, which is the same code and takes half
// of the time, with three of them.
inline std::vector<IsaAndKv> AllKvCases() {
  std::vector<IsaAndKv> cases;
  const std::vector<Isa> isas = AttentionIsas();
  for (const Isa isa : isas) {
    const bool is_spared = isa == Isa::kPortable && isas.size() > 1;
    for (const KvStorage& kv : kKvStorages) {
      const bool is_of_three =
          kv.dtype == DType::kF16 && kv.bits.key != 4 && kv.bits != KvBits(16, 8);
      if (isa == Isa::kAvx512Vnni && kv.bits.key == 16) continue;
      if (!is_spared || is_of_three) cases.push_back({isa, kv});
    }
  }
  return cases;
}

// Each form of attention with keys of 4 bits, which are centred.
inline std::vector<IsaAndKv> CentredKvCases() {
  std::vector<IsaAndKv> cases;
  for (const Isa isa : AttentionIsas()) {
    for (const KvStorage& kv : kKvStorages) {
      if (kv.bits.key == 4) cases.push_back({isa, kv});
    }
  }
  return cases;
}

}  // namespace spillway::kernels
