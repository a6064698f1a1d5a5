// GgufType: element types of GGUF files: how long blocks of values are, and their values as ggml
// defines them, computed in fp32 in its order. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "spillway/dtype.h"
#include "src/gguf/gguf_block.h"

namespace spillway {

struct GgufType {
  using Decode = void (*)(const std::byte* block, float* values);

  std::string_view name;  // "Q4_K"
  int64_t block_values = 1;
  int64_t block_bytes = 0;    // little-endian
  DType dtype = DType::kF32;  // of its values: as stored, or decoded
  Decode decode = nullptr;    // one block; null: values lie in the file as they are
  // Type of groups of 64 that holds the same weights, and what they are made of; nullopt: none.
  std::optional<DType> held = std::nullopt;
  SplitBlock split = nullptr;

  bool IsBlock() const { return decode != nullptr; }
};

// The type of that number in a file; null: one that is not read.
const GgufType* FindGgufType(uint32_t number);

// "Q2_K" where only the name is known, "number 40" else; for messages.
std::string GgufTypeName(uint32_t number);

// Names of all types that are read, for messages.
std::string ReadGgufTypes();

// Values of whole blocks. Requires: type.IsBlock(); blocks.size() is a multiple of its block_bytes,
// values have room for all of them.
void DecodeBlocks(const GgufType& type, std::span<const std::byte> blocks, std::span<float> values);

// Fills `groups` with a row in the type that holds it. False: a scale is so large that 32 times it,
// which the type has to hold as a minimum, is beyond fp16. Requires: type.held; the blocks of one
// row, or of rows of whole groups; groups.size() == RowBytes of as many values.
bool HoldBlocks(const GgufType& type, std::span<const std::byte> blocks,
                std::span<std::byte> groups);

}  // namespace spillway
