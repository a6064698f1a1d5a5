#include "src/checkpoint/torch_types.h"

#include <algorithm>
#include <array>

namespace spillway {
namespace {

constexpr std::array kTypes = {
    TorchType{"float16", "HalfStorage", 2, DType::kF16},
    TorchType{"bfloat16", "BFloat16Storage", 2, DType::kBF16},
    TorchType{"float32", "FloatStorage", 4, DType::kF32},
    TorchType{"float64", "DoubleStorage", 8, DType::kF32},
    TorchType{"int64", "LongStorage", 8},
    TorchType{"int32", "IntStorage", 4},
    TorchType{"int16", "ShortStorage", 2},
    TorchType{"int8", "CharStorage"},
    TorchType{"uint8", "ByteStorage"},
    TorchType{"bool", "BoolStorage"},
    TorchType{"complex64", "ComplexFloatStorage", 8},
    TorchType{"complex128", "ComplexDoubleStorage", 16},
    TorchType{"quint8", "QUInt8Storage"},
    TorchType{"qint8", "QInt8Storage"},
    TorchType{"qint32", "QInt32Storage", 4},
    TorchType{"quint4x2", "QUInt4x2Storage"},
    TorchType{"quint2x4", "QUInt2x4Storage"},
    TorchType{"complex32", "", 4},
    TorchType{"uint16", "", 2},
    TorchType{"uint32", "", 4},
    TorchType{"uint64", "", 8},
    TorchType{"float8_e4m3fn", ""},
    TorchType{"float8_e4m3fnuz", ""},
    TorchType{"float8_e5m2", ""},
    TorchType{"float8_e5m2fnuz", ""},
    TorchType{"float8_e8m0fnu", ""},
    TorchType{"float4_e2m1fn_x2", ""},
};

}  // namespace

const TorchType kUntyped = {"bytes", "UntypedStorage"};

const TorchType* FindTorchType(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &TorchType::name);
  return found == kTypes.end() ? nullptr : found;
}

const TorchType* FindStorageClass(std::string_view clazz) {
  const auto* found = std::ranges::find(kTypes, clazz, &TorchType::clazz);
  return found == kTypes.end() || clazz.empty() ? nullptr : found;
}

}  // namespace spillway
