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

#include "kernels/convert/quantise.h"
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

// A range of rows or columns.
struct Run {
  int64_t first = 0;
  int64_t count = 0;
};

// Axis of a tensor along which words hold several neighbours.
enum class PackedAlong { kFirst, kLast };

// Codes of a rectangle of a tensor of words: lines of places, of which a word holds several in a
// line, the first in its lowest bits.
class PackedCodes {
 public:
  PackedCodes(const Checkpoint& checkpoint, int64_t index, int bits, PackedAlong along, Run lines,
              Run places)
      : bits_(bits), along_(along), lines_(lines) {
    first_word_ = places.first / CodesAWord(bits);
    num_words_ = DivideUp(places.first + places.count, CodesAWord(bits)) - first_word_;
    words_ =
        along == PackedAlong::kFirst
            ? ReadWords(checkpoint, index, {first_word_, num_words_, lines.first, lines.count})
            : ReadWords(checkpoint, index, {lines.first, lines.count, first_word_, num_words_});
  }

  static int64_t CodesAWord(int bits) { return 32 / bits; }

  // Fills `codes` with a line's codes, from its first place of those that are there on. Requires:
  // the places begin with a word.
  void FillLine(int64_t line, std::span<uint8_t> codes) const {
    const bool first = along_ == PackedAlong::kFirst;
    const int64_t at = line - lines_.first;
    const uint32_t* word = words_.data() + (first ? at : at * num_words_);
    const int64_t step = first ? lines_.count : 1;
    bits_ == 8 ? Unpack<8>(word, step, codes) : Unpack<4>(word, step, codes);
  }

  // Fills `codes` with the codes at one place of each line.
  void FillPlace(int64_t place, std::span<uint8_t> codes) const {
    const bool first = along_ == PackedAlong::kFirst;
    const int64_t column = place / CodesAWord(bits_) - first_word_;
    const uint32_t* word = words_.data() + (first ? column * lines_.count : column);
    const auto shift = static_cast<int>(place % CodesAWord(bits_)) * bits_;
    const uint32_t mask = (uint32_t{1} << bits_) - 1;
    for (uint8_t& code : codes) {
      code = static_cast<uint8_t>(*word >> shift & mask);
      word += first ? 1 : num_words_;
    }
  }

  // The code at a place of a line, both as the tensor counts them, and so much more than it, of the
  // same bits.
  int At(int64_t line, int64_t place, uint32_t more = 0) const {
    const int64_t word = place / CodesAWord(bits_) - first_word_;
    const int64_t at = along_ == PackedAlong::kFirst ? word * lines_.count + line - lines_.first
                                                     : (line - lines_.first) * num_words_ + word;
    const auto shift = static_cast<int>(place % CodesAWord(bits_)) * bits_;
    const uint32_t mask = (uint32_t{1} << bits_) - 1;
    return static_cast<int>(((words_[static_cast<std::size_t>(at)] >> shift) + more) & mask);
  }

 private:
  // Words `step` apart.
  template <int kBits>
  static void Unpack(const uint32_t* word, int64_t step, std::span<uint8_t> codes) {
    constexpr std::size_t kAWord = 32 / kBits;
    constexpr uint32_t kMask = (1U << kBits) - 1;
    for (std::size_t at = 0; at < codes.size(); at += kAWord, word += step) {
      for (std::size_t i = 0; i < std::min(kAWord, codes.size() - at); ++i)
        codes[at + i] = static_cast<uint8_t>(*word >> (i * kBits) & kMask);
    }
  }

  int bits_;
  PackedAlong along_;
  Run lines_;
  int64_t first_word_ = 0;
  int64_t num_words_ = 0;
  std::vector<uint32_t> words_;
};

// Writes groups of a row in a type of kernels/convert/quantise.h, one after the other.
class GroupWriter {
 public:
  GroupWriter(DType dtype, std::span<std::byte> out) : dtype_(dtype), out_(out) {}

  // Codes of as many weights as there are, 64 or fewer at the end of a row.
  void Add(uint32_t head, std::span<const uint8_t> codes) {
    std::array<uint8_t, kGroupWeights> all{};
    std::ranges::copy(codes, all.begin());
    const auto bytes = static_cast<std::size_t>(GroupBytes(dtype_));
    kernels::PackGroup(std::as_bytes(std::span(&head, 1)), all, dtype_, out_.first(bytes));
    out_ = out_.subspan(bytes);
  }

 private:
  DType dtype_;
  std::span<std::byte> out_;
};

// Head of a group of integers. Requires: a scale that is a number of 16 bits.
uint32_t HeadOf(float scale, int zero) {
  return std::bit_cast<uint32_t>(scale) | static_cast<uint32_t>(zero);
}

constexpr std::string_view kWideScales = "has integers with scales of 32 bits";
constexpr std::string_view kSmallGroups = "has a scale for fewer weights than 64";

// True where each 64 weights of a row, the unit of what is held, share a scale.
bool FillsGroups(int64_t neighbours, int64_t cols) {
  return neighbours >= cols || neighbours % kGroupWeights == 0;
}

// Places of eight neighbours in a word of AWQ's.
constexpr std::array<int64_t, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

int64_t AwqPlace(int64_t row) {
  return row / 8 * 8 + kAwqPlaces[static_cast<std::size_t>(row % 8)];
}

// Layout of codes, zero points and scales of a matrix, by method.
struct Layout {
  bool packs_rows = false;  // a word holds codes of several rows; else of several columns
  PackedAlong codes = PackedAlong::kLast;
  PackedAlong zeros = PackedAlong::kLast;  // of several rows, in lines of a group
  bool groups_first = false;               // scales are [group][row]; else [row][group]
  bool in_awq_order = false;               // rows in a word
};

Layout LayoutOf(CodeMethod method) {
  switch (method) {
    case CodeMethod::kGptq:
      return {.codes = PackedAlong::kFirst, .groups_first = true};
    case CodeMethod::kAwq:
      return {.packs_rows = true, .groups_first = true, .in_awq_order = true};
    default:
      return {.zeros = PackedAlong::kFirst};
  }
}

// Matrices whose inputs are in groups, with codes in words.
class GroupedMatrix : public CodedMatrix {
 public:
  GroupedMatrix(const Checkpoint& checkpoint, CodedParts parts, const Quantisation& codes,
                int64_t rows, int64_t cols)
      : CodedMatrix(rows, cols),
        checkpoint_(checkpoint),
        parts_(std::move(parts)),
        codes_(codes),
        layout_(LayoutOf(codes.method)),
        group_size_(codes.group_size <= 0 ? cols : codes.group_size),
        num_groups_(DivideUp(cols, group_size_)) {}

  void Decode(const ElementBox& box, std::span<float> out) const override {
    const Run rows = {box.first_row, box.num_rows};
    const Run cols = {box.first_col, box.num_cols};
    const std::vector<int64_t> groups = GroupsOf(cols);
    const std::vector<float> scales = ReadScales(rows);
    const std::vector<int> zeros = ReadZeros(rows);
    const PackedCodes codes = ReadCodes(rows, cols);
    for (int64_t row = 0; row < rows.count; ++row) {
      for (int64_t col = 0; col < cols.count; ++col) {
        const int64_t group = groups[static_cast<std::size_t>(col)];
        const int code = CodeAt(codes, rows.first + row, cols.first + col);
        const int zero = zeros[static_cast<std::size_t>(group * rows.count + row)];
        out[static_cast<std::size_t>(row * cols.count + col)] =
            scales[ScaleAt(group, row, rows.count)] * static_cast<float>(code - zero);
      }
    }
  }

  Holding holding() const override {
    if (TensorAt(checkpoint_, parts_.scales).dtype == DType::kF32) return {{}, kWideScales};
    if (!FillsGroups(group_size_, cols())) return {{}, kSmallGroups};
    if (!IsInOrder()) return {{}, "has inputs in another order than their groups (desc_act)"};
    return {dtype()};
  }

  void ReadRows(int64_t first_row, std::span<std::byte> out) const override {
    const Run rows = {first_row, std::ssize(out) / RowBytes(dtype(), cols())};
    const std::vector<float> scales = ReadScales(rows);
    const std::vector<int> zeros = ReadZeros(rows);
    const PackedCodes codes = ReadCodes(rows, {0, cols()});
    GroupWriter writer(dtype(), out);
    std::vector<uint8_t> of_row(static_cast<std::size_t>(cols()));
    for (int64_t row = 0; row < rows.count; ++row) {
      layout_.packs_rows ? codes.FillPlace(PlaceOf(rows.first + row), of_row)
                         : codes.FillLine(rows.first + row, of_row);
      for (int64_t col = 0; col < cols(); col += kGroupWeights) {
        const int64_t of = col / group_size_;
        const int zero = zeros[static_cast<std::size_t>(of * rows.count + row)];
        writer.Add(HeadOf(scales[ScaleAt(of, row, rows.count)], zero),
                   std::span(of_row).subspan(
                       static_cast<std::size_t>(col),
                       static_cast<std::size_t>(std::min(kGroupWeights, cols() - col))));
      }
    }
  }

 private:
  // That holds the codes.
  DType dtype() const { return codes_.bits == 8 ? DType::kInt8 : DType::kInt4; }
  PackedCodes ReadCodes(Run rows, Run cols) const {
    return {checkpoint_,
            parts_.codes,
            codes_.bits,
            layout_.codes,
            layout_.packs_rows ? cols : rows,
            layout_.packs_rows ? rows : cols};
  }
  // Place of a scale of a group, of the row'th of so many rows.
  std::size_t ScaleAt(int64_t group, int64_t row, int64_t num_rows) const {
    return static_cast<std::size_t>(layout_.groups_first ? group * num_rows + row
                                                         : row * num_groups_ + group);
  }
  // True where inputs are in the order of their groups.
  bool IsInOrder() const {
    if (parts_.groups < 0) return true;
    const std::vector<int64_t> groups = GroupsOf({0, cols()});
    for (int64_t col = 0; col < cols(); ++col) {
      if (groups[static_cast<std::size_t>(col)] != col / group_size_) return false;
    }
    return true;
  }
  int CodeAt(const PackedCodes& codes, int64_t row, int64_t col) const {
    return layout_.packs_rows ? codes.At(col, PlaceOf(row)) : codes.At(row, col);
  }
  // Place of a row among those of its words.
  int64_t PlaceOf(int64_t row) const { return layout_.in_awq_order ? AwqPlace(row) : row; }

  std::vector<int64_t> GroupsOf(Run cols) const;
  std::vector<float> ReadScales(Run rows) const;
  std::vector<int> ReadZeros(Run rows) const;  // [group][row]

  const Checkpoint& checkpoint_;
  CodedParts parts_;
  Quantisation codes_;
  Layout layout_;
  int64_t group_size_;
  int64_t num_groups_;
};

std::vector<int64_t> GroupedMatrix::GroupsOf(Run cols) const {
  std::vector<int64_t> groups;
  if (parts_.groups < 0) {
    for (int64_t col = cols.first; col < cols.first + cols.count; ++col)
      groups.push_back(col / group_size_);
    return groups;
  }
  for (const uint32_t group :
       ReadWords(checkpoint_, parts_.groups, {0, 1, cols.first, cols.count})) {
    if (group >= static_cast<uint64_t>(num_groups_)) {
      throw Error(ErrorCode::kModelMalformed,
                  fmt::format("tensor \"{}\": an input of group {}, of {}; download it again",
                              Printable(parts_.name), group, num_groups_));
    }
    groups.push_back(group);
  }
  return groups;
}

std::vector<float> GroupedMatrix::ReadScales(Run rows) const {
  const ElementBox box = layout_.groups_first ? ElementBox{0, num_groups_, rows.first, rows.count}
                                              : ElementBox{rows.first, rows.count, 0, num_groups_};
  return ReadFloats(checkpoint_, parts_.scales, box);
}

std::vector<int> GroupedMatrix::ReadZeros(Run rows) const {
  if (parts_.zeros < 0) {
    const int middle = 1 << (codes_.bits - 1);
    return std::vector<int>(static_cast<std::size_t>(num_groups_ * rows.count), middle);
  }
  const PackedCodes packed(checkpoint_, parts_.zeros, codes_.bits, layout_.zeros, {0, num_groups_},
                           rows);
  std::vector<int> zeros;
  for (int64_t group = 0; group < num_groups_; ++group) {
    for (int64_t row = rows.first; row < rows.first + rows.count; ++row)
      zeros.push_back(packed.At(group, PlaceOf(row), static_cast<uint32_t>(codes_.zero_added)));
  }
  return zeros;
}

// Numbers of 8 bits with 4 of exponent and 3 of mantissa, without infinities.
const std::array<float, 256>& Fp8Values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> all{};
    for (std::size_t code = 0; code < all.size(); ++code) {
      const bool is_nan = (code & kernels::kFp8NaN) == kernels::kFp8NaN;
      all[code] = is_nan ? std::numeric_limits<float>::quiet_NaN()
                         : kernels::Fp8Number(static_cast<uint8_t>(code));
    }
    return all;
  }();
  return values;
}

// Scales of the blocks that a box has a part of. `block`: its size.
class BlockScales {
 public:
  BlockScales(const Checkpoint& checkpoint, int64_t index, const ElementBox& block,
              const ElementBox& box)
      : block_(block),
        first_row_(box.first_row / block.num_rows),
        first_col_(box.first_col / block.num_cols) {
    const int64_t rows = DivideUp(box.first_row + box.num_rows, block.num_rows) - first_row_;
    cols_ = DivideUp(box.first_col + box.num_cols, block.num_cols) - first_col_;
    scales_ = ReadFloats(checkpoint, index, {first_row_, rows, first_col_, cols_});
  }

  float At(int64_t row, int64_t col) const {
    const int64_t of_row = row / block_.num_rows - first_row_;
    return scales_[static_cast<std::size_t>(of_row * cols_ + col / block_.num_cols - first_col_)];
  }

 private:
  ElementBox block_;
  int64_t first_row_;
  int64_t first_col_;
  int64_t cols_ = 0;
  std::vector<float> scales_;
};

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
    const BlockScales scales(checkpoint_, parts_.scales, block_, box);
    for (int64_t row = 0; row < box.num_rows; ++row) {
      for (int64_t col = 0; col < box.num_cols; ++col) {
        const auto at = static_cast<std::size_t>(row * box.num_cols + col);
        out[at] = NumberOf(codes[at]) * scales.At(box.first_row + row, box.first_col + col);
      }
    }
  }

  Holding holding() const override {
    if (!FillsGroups(block_.num_cols, cols())) return {{}, kSmallGroups};
    if (is_fp8_) return {DType::kFp8};
    if (TensorAt(checkpoint_, parts_.scales).dtype == DType::kF32) return {{}, kWideScales};
    return {DType::kInt8};
  }

  void ReadRows(int64_t first_row, std::span<std::byte> out) const override {
    const DType dtype = is_fp8_ ? DType::kFp8 : DType::kInt8;
    const int64_t num_rows = std::ssize(out) / RowBytes(dtype, cols());
    const ElementBox box = {first_row, num_rows, 0, cols()};
    std::vector<uint8_t> codes = ReadBytes(checkpoint_, parts_.codes, box);
    if (!is_fp8_) {
      for (uint8_t& code : codes) code ^= kSignBit;  // counted from the least
    }
    const BlockScales scales(checkpoint_, parts_.scales, block_, box);
    GroupWriter writer(dtype, out);
    for (int64_t row = 0; row < num_rows; ++row) {
      for (int64_t col = 0; col < cols(); col += kGroupWeights) {
        const float scale = scales.At(first_row + row, col);
        const uint32_t head =
            is_fp8_ ? std::bit_cast<uint32_t>(scale) : HeadOf(scale, int{kSignBit});
        writer.Add(head, std::span(codes).subspan(
                             static_cast<std::size_t>(row * cols() + col),
                             static_cast<std::size_t>(std::min(kGroupWeights, cols() - col))));
      }
    }
  }

 private:
  static constexpr uint8_t kSignBit = 128;

  float NumberOf(uint8_t code) const {
    return is_fp8_ ? Fp8Values()[code] : static_cast<float>(static_cast<int8_t>(code));
  }

  const Checkpoint& checkpoint_;
  CodedParts parts_;
  ElementBox block_;  // its size
  bool is_fp8_;
};

// Numbers of 4 bits with two of exponent and one of mantissa.
constexpr std::array<float, 16> kFp4Values = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,
                                              4.0F,  6.0F,  -0.0F, -0.5F, -1.0F, -1.5F,
                                              -2.0F, -3.0F, -4.0F, -6.0F};

// The power of two that a scale of 8 bits of exponent is.
float Mxfp4Scale(uint8_t code) {
  constexpr int kBias = 127;
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0F, code - kBias);
}

// A stack of matrices of 4-bit numbers, the first of two in the low half of a byte, of which
// kMxfp4Group neighbours of a row share a scale: bytes [matrix, row, group, 16], scales [matrix,
// row, group].
class Mxfp4Stack : public CodedMatrix {
 public:
  Mxfp4Stack(const Checkpoint& checkpoint, CodedParts parts, const Shape& codes)
      : CodedMatrix(codes[0] * codes[1], codes[2] * kMxfp4Group, codes[0]),
        checkpoint_(checkpoint),
        parts_(std::move(parts)) {}

  void Decode(const ElementBox& box, std::span<float> out) const override {
    const auto step = box.num_cols == cols() ? out.size() : static_cast<std::size_t>(box.num_cols);
    for (int64_t row = box.first_row; !out.empty(); ++row, out = out.subspan(step))
      DecodeRun(row * cols() + box.first_col, out.first(step));
  }

 private:
  // Decodes neighbours, from element number `first` of the stack on.
  void DecodeRun(int64_t first, std::span<float> out) const {
    const int64_t first_group = first / kMxfp4Group;
    const int64_t num_groups = DivideUp(first + std::ssize(out), kMxfp4Group) - first_group;
    const std::vector<uint8_t> codes =
        ReadBytes(checkpoint_, parts_.codes, {first_group, num_groups, 0, kMxfp4Group / 2});
    std::vector<float> scales;
    for (const uint8_t scale : ReadScales(first_group, num_groups))
      scales.push_back(Mxfp4Scale(scale));
    auto at = static_cast<std::size_t>(first - first_group * kMxfp4Group);
    for (float& value : out) {
      const int code = codes[at / 2] >> (at % 2 * 4) & 15;
      value = kFp4Values[static_cast<std::size_t>(code)] * scales[at / kMxfp4Group];
      ++at;
    }
  }

  // Scales of neighbouring groups, which are one run of bytes.
  std::vector<uint8_t> ReadScales(int64_t first, int64_t count) const {
    std::vector<uint8_t> scales(static_cast<std::size_t>(count));
    checkpoint_.Read(parts_.scales, first, std::as_writable_bytes(std::span(scales)));
    return scales;
  }

  const Checkpoint& checkpoint_;
  CodedParts parts_;
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

std::unique_ptr<const CodedMatrix> MakeGrouped(const Checkpoint& checkpoint,
                                               const CodedParts& parts, const Quantisation& codes) {
  const Layout layout = LayoutOf(codes.method);
  const int64_t a_word = PackedCodes::CodesAWord(codes.bits);
  // The axes of the words, as outputs and inputs.
  Shape shape = CodesShape(checkpoint, parts);
  if (layout.packs_rows || layout.codes == PackedAlong::kFirst) std::swap(shape[0], shape[1]);
  const int64_t rows = shape[0] * (layout.packs_rows ? a_word : 1);
  const int64_t cols = shape[1] * (layout.packs_rows ? 1 : a_word);
  const int64_t groups = codes.group_size <= 0 ? 1 : DivideUp(cols, codes.group_size);
  const int64_t row_words = DivideUp(rows, a_word);
  ExpectShape(checkpoint, parts, parts.scales,
              layout.groups_first ? Shape{groups, rows} : Shape{rows, groups});
  if (parts.zeros >= 0 || codes.method != CodeMethod::kPacked) {
    ExpectShape(
        checkpoint, parts, parts.zeros,
        layout.zeros == PackedAlong::kLast ? Shape{groups, row_words} : Shape{row_words, groups});
  }
  if (parts.groups >= 0) ExpectShape(checkpoint, parts, parts.groups, {cols});
  return std::make_unique<GroupedMatrix>(checkpoint, parts, codes, rows, cols);
}

std::unique_ptr<const CodedMatrix> MakeMxfp4(const Checkpoint& checkpoint,
                                             const CodedParts& parts) {
  const Shape& codes = TensorAt(checkpoint, parts.codes).shape;
  const bool is_stack = codes.size() == 4 && codes[3] == kMxfp4Group / 2 &&
                        std::ranges::all_of(codes, [](int64_t size) { return size > 0; });
  if (!is_stack) RefuseParts(parts, "its codes are no stack of matrices of groups of 16 bytes");
  ExpectShape(checkpoint, parts, parts.scales, {codes[0], codes[1], codes[2]});
  for (const int64_t index : {parts.codes, parts.scales})
    ExpectType(checkpoint, parts, index, "U8");
  return std::make_unique<Mxfp4Stack>(checkpoint, parts, codes);
}

}  // namespace

void CodedMatrix::ReadRows(int64_t /*first_row*/, std::span<std::byte> /*out*/) const {
  SPILLWAY_CHECK(false);
}

std::unique_ptr<const CodedMatrix> MakeCodedMatrix(const Checkpoint& checkpoint,
                                                   const CodedParts& parts,
                                                   const Quantisation& codes) {
  if (codes.method == CodeMethod::kMxfp4) return MakeMxfp4(checkpoint, parts);
  CheckTypes(checkpoint, parts, codes.method);
  if (codes.method != CodeMethod::kScaled) return MakeGrouped(checkpoint, parts, codes);
  const Shape shape = CodesShape(checkpoint, parts);
  const ElementBox block = BlockOf(checkpoint, parts, codes, shape);
  return std::make_unique<ScaledMatrix>(checkpoint, parts, block, shape[0], shape[1]);
}

}  // namespace spillway
