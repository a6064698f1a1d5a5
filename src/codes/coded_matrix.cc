#include "src/codes/coded_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "spillway/round.h"
#include "src/codes/raw_box.h"

namespace spillway {
namespace {

[[noreturn]] void RefuseParts(const CodedParts& parts, const std::string& what) {
  throw Error(
      ErrorCode::kModelInconsistent,
      fmt::format("tensor \"{}\": {}; download the model again", Printable(parts.name), what));
}

const CheckpointTensor& TensorAt(const Checkpoint& checkpoint, int64_t index) {
  return checkpoint.tensors()[static_cast<std::size_t>(index)];
}

using Shape = std::vector<int64_t>;

void ExpectShape(const Checkpoint& checkpoint, const CodedParts& parts, int64_t index,
                 const Shape& shape) {
  if (index < 0) RefuseParts(parts, "a part of its codes is missing");
  const CheckpointTensor& tensor = TensorAt(checkpoint, index);
  if (tensor.shape != shape)
    RefuseParts(
        parts, fmt::format("\"{}\" has another shape than its codes need", Printable(tensor.name)));
}

// Parts of words: codes side by side, the first in the lowest bits.
class Packing {
 public:
  explicit Packing(int bits) : bits_(bits), mask_((uint32_t{1} << bits) - 1) {}

  int64_t codes_a_word() const { return 32 / bits_; }
  int64_t WordOf(int64_t place) const { return place / codes_a_word(); }
  int64_t WordsOf(int64_t count) const { return DivideUp(count, codes_a_word()); }
  // The code at that place, and so much more than it, of the same bits.
  int CodeIn(uint32_t word, int64_t place, uint32_t more = 0) const {
    const auto shift = static_cast<int>(place % codes_a_word()) * bits_;
    return static_cast<int>(((word >> shift) + more) & mask_);
  }

 private:
  int bits_;
  uint32_t mask_;
};

// Places of eight neighbours in a word of AWQ's.
constexpr std::array<int64_t, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

int64_t AwqPlace(int64_t row) {
  return row / 8 * 8 + kAwqPlaces[static_cast<std::size_t>(row % 8)];
}

// Scale and zero point of each group, of some rows.
struct GroupValues {
  int64_t num_rows = 0;
  std::vector<float> scales = {};  // [group][row] or [row][group]
  std::vector<int> zeros = {};
};

// Matrices whose inputs are in groups.
class GroupedMatrix : public CodedMatrix {
 public:
  GroupedMatrix(const Checkpoint& checkpoint, CodedParts parts, const Quantisation& codes,
                int64_t rows, int64_t cols)
      : CodedMatrix(rows, cols),
        checkpoint_(checkpoint),
        parts_(std::move(parts)),
        packing_(codes.bits),
        group_size_(codes.group_size <= 0 ? cols : codes.group_size),
        num_groups_(DivideUp(cols, group_size_)),
        middle_(1 << (codes.bits - 1)) {}

  void Decode(const ElementBox& box, std::span<float> out) const override {
    const std::vector<int64_t> groups = GroupsOf(box);
    const GroupValues values = ReadGroups(box.first_row, box.num_rows);
    const std::vector<int> codes = ReadCodes(box);
    for (int64_t row = 0; row < box.num_rows; ++row) {
      for (int64_t col = 0; col < box.num_cols; ++col) {
        const auto at = static_cast<std::size_t>(row * box.num_cols + col);
        const auto group =
            static_cast<std::size_t>(PlaceOf(groups[static_cast<std::size_t>(col)], row, values));
        out[at] = values.scales[group] * static_cast<float>(codes[at] - values.zeros[group]);
      }
    }
  }

 protected:
  // Codes of a box, row by row.
  virtual std::vector<int> ReadCodes(const ElementBox& box) const = 0;
  virtual GroupValues ReadGroups(int64_t first_row, int64_t num_rows) const = 0;
  // Place of a group's values.
  virtual int64_t PlaceOf(int64_t group, int64_t row, const GroupValues& values) const = 0;

  const Checkpoint& checkpoint() const { return checkpoint_; }
  const CodedParts& parts() const { return parts_; }
  const Packing& packing() const { return packing_; }
  int64_t num_groups() const { return num_groups_; }
  int middle() const { return middle_; }

 private:
  std::vector<int64_t> GroupsOf(const ElementBox& box) const;

  const Checkpoint& checkpoint_;
  CodedParts parts_;
  Packing packing_;
  int64_t group_size_;
  int64_t num_groups_;
  int middle_;
};

std::vector<int64_t> GroupedMatrix::GroupsOf(const ElementBox& box) const {
  std::vector<int64_t> groups;
  if (parts_.groups < 0) {
    for (int64_t col = 0; col < box.num_cols; ++col)
      groups.push_back((box.first_col + col) / group_size_);
    return groups;
  }
  for (const uint32_t group :
       ReadWords(checkpoint_, parts_.groups, {0, 1, box.first_col, box.num_cols})) {
    if (group >= static_cast<uint64_t>(num_groups_)) {
      throw Error(ErrorCode::kModelMalformed,
                  fmt::format("tensor \"{}\": an input of group {}, of {}; download it again",
                              Printable(parts_.name), group, num_groups_));
    }
    groups.push_back(group);
  }
  return groups;
}

// Words of codes in columns [first word, ..) of rows, as both matrices that are packed by rows have
// them for zero points.
class TransposedMatrix : public GroupedMatrix {
 public:
  TransposedMatrix(const Checkpoint& checkpoint, const CodedParts& parts, const Quantisation& codes,
                   int64_t rows, int64_t cols)
      : GroupedMatrix(checkpoint, parts, codes, rows, cols),
        zero_added_(static_cast<uint32_t>(codes.zero_added)) {}

 protected:
  int64_t PlaceOf(int64_t group, int64_t row, const GroupValues& values) const override {
    return group * values.num_rows + row;
  }

  // Place of a row among the codes of its words.
  virtual int64_t PackedRow(int64_t row) const = 0;

  GroupValues ReadGroups(int64_t first_row, int64_t num_rows) const override {
    GroupValues values = {.num_rows = num_rows};
    values.scales =
        ReadFloats(checkpoint(), parts().scales, {0, num_groups(), first_row, num_rows});
    const int64_t first_word = packing().WordOf(first_row);
    const int64_t num_words = packing().WordsOf(first_row + num_rows) - first_word;
    const std::vector<uint32_t> words =
        ReadWords(checkpoint(), parts().zeros, {0, num_groups(), first_word, num_words});
    for (int64_t group = 0; group < num_groups(); ++group) {
      for (int64_t row = first_row; row < first_row + num_rows; ++row) {
        const auto word =
            static_cast<std::size_t>(group * num_words + packing().WordOf(row) - first_word);
        values.zeros.push_back(packing().CodeIn(words[word], PackedRow(row), zero_added_));
      }
    }
    return values;
  }

 private:
  uint32_t zero_added_;
};

class GptqMatrix : public TransposedMatrix {
 public:
  using TransposedMatrix::TransposedMatrix;

 protected:
  int64_t PackedRow(int64_t row) const override { return row; }

  std::vector<int> ReadCodes(const ElementBox& box) const override {
    const int64_t first_word = packing().WordOf(box.first_col);
    const int64_t num_words = packing().WordsOf(box.first_col + box.num_cols) - first_word;
    const std::vector<uint32_t> words = ReadWords(
        checkpoint(), parts().codes, {first_word, num_words, box.first_row, box.num_rows});
    std::vector<int> codes;
    for (int64_t row = 0; row < box.num_rows; ++row) {
      for (int64_t col = box.first_col; col < box.first_col + box.num_cols; ++col) {
        const int64_t word = (packing().WordOf(col) - first_word) * box.num_rows + row;
        codes.push_back(packing().CodeIn(words[static_cast<std::size_t>(word)], col));
      }
    }
    return codes;
  }
};

class AwqMatrix : public TransposedMatrix {
 public:
  using TransposedMatrix::TransposedMatrix;

 protected:
  int64_t PackedRow(int64_t row) const override { return AwqPlace(row); }

  std::vector<int> ReadCodes(const ElementBox& box) const override {
    const int64_t first_word = packing().WordOf(box.first_row);
    const int64_t num_words = packing().WordsOf(box.first_row + box.num_rows) - first_word;
    const std::vector<uint32_t> words = ReadWords(
        checkpoint(), parts().codes, {box.first_col, box.num_cols, first_word, num_words});
    std::vector<int> codes;
    for (int64_t row = box.first_row; row < box.first_row + box.num_rows; ++row) {
      for (int64_t col = 0; col < box.num_cols; ++col) {
        const int64_t word = col * num_words + packing().WordOf(row) - first_word;
        codes.push_back(packing().CodeIn(words[static_cast<std::size_t>(word)], AwqPlace(row)));
      }
    }
    return codes;
  }
};

// Rows of words, zero points packed along the rows.
class PackedMatrix : public GroupedMatrix {
 public:
  using GroupedMatrix::GroupedMatrix;

 protected:
  int64_t PlaceOf(int64_t group, int64_t row, const GroupValues&) const override {
    return row * num_groups() + group;
  }

  std::vector<int> ReadCodes(const ElementBox& box) const override {
    const int64_t first_word = packing().WordOf(box.first_col);
    const int64_t num_words = packing().WordsOf(box.first_col + box.num_cols) - first_word;
    const std::vector<uint32_t> words = ReadWords(
        checkpoint(), parts().codes, {box.first_row, box.num_rows, first_word, num_words});
    std::vector<int> codes;
    for (int64_t row = 0; row < box.num_rows; ++row) {
      for (int64_t col = box.first_col; col < box.first_col + box.num_cols; ++col) {
        const int64_t word = row * num_words + packing().WordOf(col) - first_word;
        codes.push_back(packing().CodeIn(words[static_cast<std::size_t>(word)], col));
      }
    }
    return codes;
  }

  GroupValues ReadGroups(int64_t first_row, int64_t num_rows) const override {
    GroupValues values = {.num_rows = num_rows};
    values.scales =
        ReadFloats(checkpoint(), parts().scales, {first_row, num_rows, 0, num_groups()});
    values.zeros.assign(values.scales.size(), middle());
    if (parts().zeros < 0) return values;
    const int64_t first_word = packing().WordOf(first_row);
    const int64_t num_words = packing().WordsOf(first_row + num_rows) - first_word;
    const std::vector<uint32_t> words =
        ReadWords(checkpoint(), parts().zeros, {first_word, num_words, 0, num_groups()});
    for (int64_t row = 0; row < num_rows; ++row) {
      for (int64_t group = 0; group < num_groups(); ++group) {
        const int64_t word =
            (packing().WordOf(first_row + row) - first_word) * num_groups() + group;
        values.zeros[static_cast<std::size_t>(row * num_groups() + group)] =
            packing().CodeIn(words[static_cast<std::size_t>(word)], first_row + row);
      }
    }
    return values;
  }
};

// Number of 8 bits with 4 of exponent and 3 of mantissa, without infinities.
float Fp8Value(uint8_t code) {
  constexpr int kBias = 7;
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  if ((code & 127) == 127) return std::numeric_limits<float>::quiet_NaN();
  const float size = exponent == 0
                         ? std::ldexp(static_cast<float>(mantissa), 1 - kBias - 3)
                         : std::ldexp(static_cast<float>(8 + mantissa), exponent - kBias - 3);
  return code < 128 ? size : -size;
}

const std::array<float, 256>& Fp8Values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> all{};
    for (std::size_t code = 0; code < all.size(); ++code)
      all[code] = Fp8Value(static_cast<uint8_t>(code));
    return all;
  }();
  return values;
}

// A number for each element, and a scale for each block.
class ScaledMatrix : public CodedMatrix {
 public:
  ScaledMatrix(const Checkpoint& checkpoint, CodedParts parts, ElementBox block, int64_t rows,
               int64_t cols)
      : CodedMatrix(rows, cols),
        checkpoint_(checkpoint),
        parts_(std::move(parts)),
        block_(block),
        is_fp8_(TensorAt(checkpoint, parts_.codes).coded == "F8_E4M3") {}

  void Decode(const ElementBox& box, std::span<float> out) const override {
    const std::vector<uint8_t> codes = ReadBytes(checkpoint_, parts_.codes, box);
    const int64_t first_row = box.first_row / block_.num_rows;
    const int64_t first_col = box.first_col / block_.num_cols;
    const int64_t scale_rows = DivideUp(box.first_row + box.num_rows, block_.num_rows) - first_row;
    const int64_t scale_cols = DivideUp(box.first_col + box.num_cols, block_.num_cols) - first_col;
    const std::vector<float> scales =
        ReadFloats(checkpoint_, parts_.scales, {first_row, scale_rows, first_col, scale_cols});
    for (int64_t row = 0; row < box.num_rows; ++row) {
      const int64_t scale_row = (box.first_row + row) / block_.num_rows - first_row;
      for (int64_t col = 0; col < box.num_cols; ++col) {
        const int64_t scale_col = (box.first_col + col) / block_.num_cols - first_col;
        const auto at = static_cast<std::size_t>(row * box.num_cols + col);
        out[at] = NumberOf(codes[at]) *
                  scales[static_cast<std::size_t>(scale_row * scale_cols + scale_col)];
      }
    }
  }

 private:
  float NumberOf(uint8_t code) const {
    return is_fp8_ ? Fp8Values()[code] : static_cast<float>(static_cast<int8_t>(code));
  }

  const Checkpoint& checkpoint_;
  CodedParts parts_;
  ElementBox block_;  // its size
  bool is_fp8_;
};

// Size of the blocks that share a scale: as config.json says, else by the scales' shape.
ElementBox BlockOf(const Checkpoint& checkpoint, const CodedParts& parts, const Quantisation& codes,
                   const Shape& shape) {
  const Shape& scales = TensorAt(checkpoint, parts.scales).shape;
  const bool one = std::ranges::all_of(scales, [](int64_t size) { return size == 1; });
  if (one) return {0, shape[0], 0, shape[1]};
  if (scales == Shape{shape[0]} || scales == Shape{shape[0], 1}) return {0, 1, 0, shape[1]};
  if (codes.block_rows > 0) {
    ExpectShape(checkpoint, parts, parts.scales,
                {DivideUp(shape[0], codes.block_rows), DivideUp(shape[1], codes.block_cols)});
    return {0, codes.block_rows, 0, codes.block_cols};
  }
  RefuseParts(parts, "its scales have another shape than its codes need");
}

void ExpectType(const Checkpoint& checkpoint, const CodedParts& parts, int64_t index,
                std::string_view type) {
  if (index < 0 || TensorAt(checkpoint, index).coded == type) return;
  RefuseParts(parts, fmt::format("\"{}\" is not of the type {}",
                                 Printable(TensorAt(checkpoint, index).name), type));
}

void CheckTypes(const Checkpoint& checkpoint, const CodedParts& parts, CodeMethod method) {
  if (parts.scales < 0) RefuseParts(parts, "its scales are missing");
  const CheckpointTensor& scales = TensorAt(checkpoint, parts.scales);
  if (!scales.refusal.empty()) throw Error(ErrorCode::kModelUnsupported, scales.refusal);
  if (method != CodeMethod::kScaled) {
    for (const int64_t index : {parts.codes, parts.zeros, parts.groups})
      ExpectType(checkpoint, parts, index, "I32");
    return;
  }
  if (parts.zeros >= 0 || parts.groups >= 0)
    RefuseParts(parts, "zero points or groups of numbers of 8 bits are not supported");
  if (TensorAt(checkpoint, parts.codes).coded != "I8")
    ExpectType(checkpoint, parts, parts.codes, "F8_E4M3");
}

Shape CodesShape(const Checkpoint& checkpoint, const CodedParts& parts) {
  const Shape& shape = TensorAt(checkpoint, parts.codes).shape;
  if (shape.size() != 2 || shape[0] <= 0 || shape[1] <= 0)
    RefuseParts(parts, "its codes are no matrix");
  return shape;
}

std::unique_ptr<const CodedMatrix> MakeTransposed(const Checkpoint& checkpoint,
                                                  const CodedParts& parts,
                                                  const Quantisation& codes) {
  const Shape shape = CodesShape(checkpoint, parts);
  const Packing packing(codes.bits);
  const bool gptq = codes.method == CodeMethod::kGptq;
  const int64_t rows = gptq ? shape[1] : shape[1] * packing.codes_a_word();
  const int64_t cols = gptq ? shape[0] * packing.codes_a_word() : shape[0];
  const int64_t groups = codes.group_size <= 0 ? 1 : DivideUp(cols, codes.group_size);
  ExpectShape(checkpoint, parts, parts.scales, {groups, rows});
  ExpectShape(checkpoint, parts, parts.zeros, {groups, packing.WordsOf(rows)});
  if (parts.groups >= 0) ExpectShape(checkpoint, parts, parts.groups, {cols});
  if (gptq) return std::make_unique<GptqMatrix>(checkpoint, parts, codes, rows, cols);
  return std::make_unique<AwqMatrix>(checkpoint, parts, codes, rows, cols);
}

std::unique_ptr<const CodedMatrix> MakePacked(const Checkpoint& checkpoint, const CodedParts& parts,
                                              const Quantisation& codes) {
  const Shape shape = CodesShape(checkpoint, parts);
  const Packing packing(codes.bits);
  const int64_t cols = shape[1] * packing.codes_a_word();
  const int64_t groups = codes.group_size <= 0 ? 1 : DivideUp(cols, codes.group_size);
  ExpectShape(checkpoint, parts, parts.scales, {shape[0], groups});
  if (parts.zeros >= 0)
    ExpectShape(checkpoint, parts, parts.zeros, {packing.WordsOf(shape[0]), groups});
  if (parts.groups >= 0) ExpectShape(checkpoint, parts, parts.groups, {cols});
  return std::make_unique<PackedMatrix>(checkpoint, parts, codes, shape[0], cols);
}

}  // namespace

std::unique_ptr<const CodedMatrix> MakeCodedMatrix(const Checkpoint& checkpoint,
                                                   const CodedParts& parts,
                                                   const Quantisation& codes) {
  CheckTypes(checkpoint, parts, codes.method);
  switch (codes.method) {
    case CodeMethod::kGptq:
    case CodeMethod::kAwq:
      return MakeTransposed(checkpoint, parts, codes);
    case CodeMethod::kPacked:
      return MakePacked(checkpoint, parts, codes);
    case CodeMethod::kScaled:
      break;
  }
  const Shape shape = CodesShape(checkpoint, parts);
  const ElementBox block = BlockOf(checkpoint, parts, codes, shape);
  return std::make_unique<ScaledMatrix>(checkpoint, parts, block, shape[0], shape[1]);
}

}  // namespace spillway
