// Functions that convert_cpu.cc calls, one set per instruction set. Private to the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "spillway/dtype.h"

namespace spillway::kernels {

struct ConvertTask {
  const void* in;
  DType in_dtype;
  void* out;
  DType out_dtype;
  int64_t count;
};

// The results are the same bits for every instruction set.
struct ConvertFunctions {
  int64_t (*convert)(const ConvertTask& task);
  int64_t (*find_non_finite)(const void* data, DType dtype, int64_t count);
  void (*add_to_float)(const void* in, DType dtype, float* y, int64_t count);
  void (*scale)(float* y, int64_t count, float factor);
  void (*fill_run)(uint32_t key, uint32_t first, float scale, float* out, int64_t count);
  void (*quantise)(const uint16_t* halfs, int64_t count, DType dtype, std::byte* row);
  void (*dequantise)(const std::byte* row, DType dtype, float* out, int64_t count);
};

extern const ConvertFunctions kConvertPortable;
extern const ConvertFunctions kConvertAvx2;
extern const ConvertFunctions kConvertAvx512;

// Functions of the machine's best instruction set, whatever SPILLWAY_ISA says.
const ConvertFunctions& BestConvert();

}  // namespace spillway::kernels
