// RatedCodes: types of codes whose products have rates of their own. Plain values; any thread.
#pragma once

#include <array>
#include <string_view>

#include "spillway/dtype.h"

namespace spillway {

struct RatedCodes {
  DType type;
  std::string_view key;   // in a machine file
  std::string_view name;  // in what profile prints
};

// The one list of what profile measures and a machine file holds.
inline constexpr std::array kRatedCodes = {
    RatedCodes{DType::kQ8, "matmul_8bit", "8-bit weights"},
    RatedCodes{DType::kQ4, "matmul_4bit", "4-bit weights"},
    RatedCodes{DType::kMxfp4, "matmul_mxfp4", "MXFP4 weights"},
    RatedCodes{DType::kFp8, "matmul_fp8", "fp8 weights"},
    RatedCodes{DType::kGgufQ8, "matmul_q8_0", "Q8_0 weights"},
    RatedCodes{DType::kGgufQ4, "matmul_q4_0", "Q4_0 weights"},
    RatedCodes{DType::kGgufM4, "matmul_q4_1", "Q4_1 weights"},
    RatedCodes{DType::kGgufK4, "matmul_q4_k", "Q4_K weights"},
    RatedCodes{DType::kGgufK6, "matmul_q6_k", "Q6_K weights"}};

}  // namespace spillway
