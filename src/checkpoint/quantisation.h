// Quantisation: how another program has coded a checkpoint's matrices, as config.json says it.
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "spillway/dtype.h"
#include "src/base/json_node.h"

namespace spillway {

enum class CodeMethod {
  kGptq,    // columns packed in words, groups of inputs, perhaps in another order
  kAwq,     // rows packed in words
  kPacked,  // compressed-tensors: columns packed in words
  kMxfp4,   // stacks of matrices of 4-bit numbers, 32 neighbours with a power of two for scale
  kScaled,  // an integer or an fp8 number each, times a scale of a block, a row or the whole
};

inline constexpr int64_t kMxfp4Group = 32;

struct Quantisation {
  CodeMethod method = CodeMethod::kScaled;
  int bits = 8;
  int64_t group_size = -1;  // inputs that share a scale; -1: all of a row
  int64_t block_rows = 0;   // kScaled: of a block; 0: as the scales' shape says
  int64_t block_cols = 0;
  int zero_added = 0;     // to a published zero point
  bool is_fp8 = false;    // kScaled
  bool reorders = false;  // kGptq: inputs may be in another order than their groups

  bool operator==(const Quantisation&) const = default;
};

// Type that holds matrices so coded as they are, as far as the settings tell; nullopt: none does.
std::optional<DType> HeldCodes(const Quantisation& codes);

// The "quantization_config" of a config.json; nullopt where there is none. Throws: Error
// kModelUnsupported (a method, or a setting of one, that is not read, by name), kModelInconsistent.
std::optional<Quantisation> ReadQuantisation(const JsonNode& config);

}  // namespace spillway
