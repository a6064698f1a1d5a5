// Rows of published codes, as they are held: the same weights as the values that they are decoded
// to.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/convert/quantise.h"
#include "spillway/round.h"
#include "src/codes/coded_checkpoint.h"

namespace spillway {
namespace {

// Tensors in memory.
class MemoryCheckpoint : public Checkpoint {
 public:
  void Add(CheckpointTensor tensor, std::vector<std::byte> data) {
    tensor.bytes = std::ssize(data);
    tensors_.push_back(std::move(tensor));
    data_.push_back(std::move(data));
  }
  std::string_view format() const override { return "memory"; }
  const std::vector<CheckpointTensor>& tensors() const override { return tensors_; }
  void Read(int64_t index, int64_t offset, std::span<std::byte> out) const override {
    const std::vector<std::byte>& data = data_[static_cast<std::size_t>(index)];
    ASSERT_LE(offset + std::ssize(out), std::ssize(data));
    std::memcpy(out.data(), data.data() + offset, out.size());
  }
  void VisitFiles(const std::function<void(const ModelFile&)>& /*visit*/) const override {}

 private:
  std::vector<CheckpointTensor> tensors_;
  std::vector<std::vector<std::byte>> data_;
};

struct Form {
  std::string name;
  Quantisation codes;
  int64_t rows;
  int64_t cols;
  DType scales = DType::kF16;
  bool has_zeros = true;
  std::optional<DType> held;
  bool in_order = true;
  const char* type = "F8_E4M3";  // of kScaled
};

class FormMaker {
 public:
  explicit FormMaker(const Form& form) : form_(form) {}

  std::unique_ptr<Checkpoint> Make() {
    switch (form_.codes.method) {
      case CodeMethod::kGptq:
        AddBytes("w.g_idx", "I32", {form_.cols}, GroupsOfInputs());
        AddWords("w.qweight", form_.cols / a_word(), form_.rows);
        AddWords("w.qzeros", groups(), form_.rows / a_word());
        AddScales("w.scales", groups(), form_.rows);
        break;
      case CodeMethod::kAwq:
        AddWords("w.qweight", form_.cols, form_.rows / a_word());
        AddWords("w.qzeros", groups(), form_.rows / a_word());
        AddScales("w.scales", groups(), form_.rows);
        break;
      case CodeMethod::kPacked:
        AddWords("w.weight_packed", form_.rows, form_.cols / a_word());
        AddScales("w.weight_scale", form_.rows, groups());
        if (form_.has_zeros) AddWords("w.weight_zero_point", form_.rows / a_word(), groups());
        break;
      case CodeMethod::kScaled:
        AddNumbers();
        AddScales("w.weight_scale", DivideUp(form_.rows, form_.codes.block_rows),
                  DivideUp(form_.cols, form_.codes.block_cols));
        break;
      case CodeMethod::kMxfp4:
        break;
    }
    return std::move(made_);
  }

 private:
  int64_t a_word() const { return 32 / form_.codes.bits; }
  int64_t group_size() const {
    return form_.codes.group_size <= 0 ? form_.cols : form_.codes.group_size;
  }
  int64_t groups() const { return DivideUp(form_.cols, group_size()); }
  void AddBytes(const std::string& name, std::string_view type, std::vector<int64_t> shape,
                std::vector<std::byte> data) {
    CheckpointTensor tensor;
    tensor.name = name;
    tensor.shape = std::move(shape);
    tensor.refusal = "codes";
    tensor.coded = type;
    made_->Add(std::move(tensor), std::move(data));
  }
  void AddWords(const std::string& name, int64_t rows, int64_t cols) {
    std::vector<std::byte> data(static_cast<std::size_t>(rows * cols * 4));
    for (std::byte& byte : data) byte = static_cast<std::byte>(random_());
    AddBytes(name, "I32", {rows, cols}, std::move(data));
  }
  // Of numbers of 8 bits all but NaNs.
  void AddNumbers() {
    std::vector<std::byte> data(static_cast<std::size_t>(form_.rows * form_.cols));
    for (std::byte& byte : data) {
      const auto code = static_cast<unsigned>(random_()) & 255U;
      byte = static_cast<std::byte>((code & kernels::kFp8NaN) == kernels::kFp8NaN ? 5U : code);
    }
    AddBytes("w.weight", form_.type, {form_.rows, form_.cols}, std::move(data));
  }
  std::vector<std::byte> GroupsOfInputs() {
    std::vector<std::byte> data;
    for (int64_t col = 0; col < form_.cols; ++col) {
      const bool moved = !form_.in_order && col == 1;
      const auto group = static_cast<uint32_t>(moved ? groups() - 1 : col / group_size());
      const auto bytes = std::bit_cast<std::array<std::byte, 4>>(group);
      data.insert(data.end(), bytes.begin(), bytes.end());
    }
    return data;
  }
  // Positive and negative numbers of the type, some of fp16 subnormal.
  void AddScales(const std::string& name, int64_t rows, int64_t cols) {
    CheckpointTensor tensor;
    tensor.name = name;
    tensor.dtype = form_.scales;
    tensor.shape = {rows, cols};
    std::vector<std::byte> data;
    for (int64_t i = 0; i < rows * cols; ++i) {
      const auto bits = static_cast<uint32_t>(random_());
      if (form_.scales == DType::kF32) {
        const uint32_t small = (bits & 0x80FFFFFFU) | 0x3A000000U;
        const auto bytes = std::bit_cast<std::array<std::byte, 4>>(small);
        data.insert(data.end(), bytes.begin(), bytes.end());
        continue;
      }
      const uint32_t half =
          form_.scales == DType::kF16 ? bits & 0xA3FFU : (bits & 0x80FFU) | 0x3A00U;
      const auto bytes = std::bit_cast<std::array<std::byte, 2>>(static_cast<uint16_t>(half));
      data.insert(data.end(), bytes.begin(), bytes.end());
    }
    made_->Add(std::move(tensor), std::move(data));
  }

  const Form& form_;
  std::mt19937 random_{7};
  std::unique_ptr<MemoryCheckpoint> made_ = std::make_unique<MemoryCheckpoint>();
};

Quantisation Grouped(CodeMethod method, int bits, int64_t group_size, int zero_added = 0) {
  Quantisation codes = {.method = method, .bits = bits};
  codes.group_size = group_size;
  codes.zero_added = zero_added;
  return codes;
}

Quantisation Blocks(int64_t rows, int64_t cols, bool is_fp8 = true) {
  Quantisation codes;
  codes.block_rows = rows;
  codes.block_cols = cols;
  codes.is_fp8 = is_fp8;
  return codes;
}

std::vector<Form> Forms() {
  using enum CodeMethod;
  std::vector<Form> forms = {
      {"gptq4", Grouped(kGptq, 4, 128, 1), 24, 320, DType::kF16, true, DType::kInt4},
      {"gptq8", Grouped(kGptq, 8, 64), 20, 200, DType::kF16, true, DType::kInt8},
      {"gptqRows", Grouped(kGptq, 4, -1, 1), 8, 200, DType::kF16, true, DType::kInt4},
      {"gptqOrdered", Grouped(kGptq, 4, 64, 1), 8, 192, DType::kF16, true, {}, false},
      {"gptqNarrow", Grouped(kGptq, 4, 32, 1), 8, 192, DType::kF16, true, {}},
      {"awq", Grouped(kAwq, 4, 128), 48, 256, DType::kF16, true, DType::kInt4},
      {"packed4", Grouped(kPacked, 4, 128), 9, 256, DType::kBF16, false, DType::kInt4},
      {"packed8Zeros", Grouped(kPacked, 8, 64), 12, 100, DType::kBF16, true, DType::kInt8},
      {"packedWide", Grouped(kPacked, 4, 128), 9, 256, DType::kF32, false, {}},
      {"fp8Blocks", Blocks(128, 128), 150, 300, DType::kBF16, false, DType::kFp8},
      {"fp8Wide", Blocks(16, 64), 40, 130, DType::kF32, false, DType::kFp8},
      {"fp8Narrow", Blocks(16, 48), 40, 130, DType::kF32, false, {}},
      {"fp8Rows", Blocks(1, 300), 7, 300, DType::kF32, false, DType::kFp8},
  };
  Form rows_of_int8 = {"int8Rows", Blocks(1, 300, false), 7, 300, DType::kBF16,
                       false,      DType::kInt8};
  rows_of_int8.type = "I8";
  forms.push_back(rows_of_int8);
  Form wide = {"int8Wide", Blocks(1, 300, false), 7, 300, DType::kF32, false, {}};
  wide.type = "I8";
  forms.push_back(wide);
  return forms;
}

class HeldRowsTest : public testing::TestWithParam<Form> {};
INSTANTIATE_TEST_SUITE_P(Forms, HeldRowsTest, testing::ValuesIn(Forms()),
                         [](const auto& info) { return info.param.name; });

TEST_P(HeldRowsTest, AreTheWeightsThatTheCodesAreDecodedTo) {
  const Form& form = GetParam();
  const std::unique_ptr<Checkpoint> checkpoint =
      DecodeCheckpoint(FormMaker(form).Make(), form.codes);
  const int64_t index = checkpoint->FindExact("w.weight");
  ASSERT_GE(index, 0);
  const CheckpointTensor& tensor = checkpoint->tensors()[static_cast<std::size_t>(index)];
  ASSERT_EQ(tensor.held, form.held);
  if (!form.held) return;
  std::vector<float> values(static_cast<std::size_t>(form.rows * form.cols));
  checkpoint->Read(index, 0, std::as_writable_bytes(std::span(values)));
  const int64_t row_bytes = RowBytes(*form.held, form.cols);
  for (const auto& [first, count] :
       {std::pair<int64_t, int64_t>{0, form.rows}, {3, 1}, {5, form.rows - 6}}) {
    std::vector<std::byte> rows(static_cast<std::size_t>(count * row_bytes));
    checkpoint->ReadRows(index, first, rows);
    EXPECT_EQ(kernels::FindNonFiniteGroup(rows, *form.held), -1);
    std::vector<float> held(static_cast<std::size_t>(form.cols));
    for (int64_t row = 0; row < count; ++row) {
      kernels::DequantiseRow(rows.data() + row * row_bytes, *form.held, held);
      for (int64_t col = 0; col < form.cols; ++col) {
        ASSERT_EQ(held[static_cast<std::size_t>(col)],
                  values[static_cast<std::size_t>((first + row) * form.cols + col)])
            << "row " << first + row << ", column " << col;
      }
    }
  }
}

}  // namespace
}  // namespace spillway
