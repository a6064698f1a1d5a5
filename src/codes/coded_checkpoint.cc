#include "src/codes/coded_checkpoint.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "spillway/round.h"
#include "src/codes/coded_matrix.h"

namespace spillway {
namespace {

// Ends of the names of the tensors that a matrix is published as, and of its own.
struct PartNames {
  std::string_view codes;
  std::array<std::string_view, 2> scales;
  std::string_view zeros;
  std::string_view groups;
  std::string_view values = ".weight";
};

PartNames NamesOf(CodeMethod method) {
  switch (method) {
    case CodeMethod::kGptq:
    case CodeMethod::kAwq:
      return {".qweight", {".scales", ".scales"}, ".qzeros", ".g_idx"};
    case CodeMethod::kPacked:
      return {".weight_packed",
              {".weight_scale", ".weight_scale"},
              ".weight_zero_point",
              ".weight_g_idx"};
    case CodeMethod::kMxfp4:  // a stack has rows where the one of values has columns: another name
      return {"_blocks", {"_scales", "_scales"}, "_zero_point", "_g_idx", "_blocks"};
    case CodeMethod::kScaled:
      break;
  }
  return {".weight", {".weight_scale_inv", ".weight_scale"}, ".weight_zero_point", ".weight_g_idx"};
}

// True for what is of use beside codes only: scales, and what others round activations with.
bool IsAside(std::string_view name) {
  constexpr std::array<std::string_view, 12> kEnds = {
      ".scales",       "_scales",       ".qzeros",           ".g_idx",
      ".weight_scale", ".weight_shape", ".weight_scale_inv", ".weight_zero_point",
      ".weight_g_idx", ".input_scale",  ".activation_scale", ".input_zero_point"};
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
}

struct Entry {
  CheckpointTensor tensor;
  int64_t index = -1;  // in the published checkpoint; -1: it is coded
  std::unique_ptr<const CodedMatrix> matrix;
};

class CodedCheckpoint : public Checkpoint {
 public:
  CodedCheckpoint(std::unique_ptr<Checkpoint> published, std::vector<Entry> entries)
      : published_(std::move(published)) {
    for (Entry& entry : entries) {
      tensors_.push_back(std::move(entry.tensor));
      indices_.push_back(entry.index);
      matrices_.push_back(std::move(entry.matrix));
    }
  }

  std::string_view format() const override { return published_->format(); }
  const std::vector<CheckpointTensor>& tensors() const override { return tensors_; }
  void Read(int64_t index, int64_t offset, std::span<std::byte> out) const override;
  void ReadRows(int64_t index, int64_t first_row, std::span<std::byte> out) const override {
    const auto at = static_cast<std::size_t>(index);
    SPILLWAY_CHECK(matrices_[at] != nullptr);
    matrices_[at]->ReadRows(first_row, out);
  }
  void VisitFiles(const std::function<void(const ModelFile&)>& visit) const override {
    published_->VisitFiles(visit);
  }
  void FreeBuffers() const override { published_->FreeBuffers(); }

 private:
  std::unique_ptr<Checkpoint> published_;
  std::vector<CheckpointTensor> tensors_;
  std::vector<int64_t> indices_;
  std::vector<std::unique_ptr<const CodedMatrix>> matrices_;
};

void CodedCheckpoint::Read(int64_t index, int64_t offset, std::span<std::byte> out) const {
  const auto at = static_cast<std::size_t>(index);
  if (indices_[at] >= 0) return published_->Read(indices_[at], offset, out);
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  SPILLWAY_CHECK(offset % kBytes == 0 && out.size() % sizeof(float) == 0);
  const CodedMatrix& matrix = *matrices_[at];
  std::span<float> left(reinterpret_cast<float*>(out.data()), out.size() / sizeof(float));
  for (int64_t first = offset / kBytes; !left.empty();) {
    const ElementBox box = FirstBox(first, std::ssize(left), matrix.cols());
    matrix.Decode(box, left.first(static_cast<std::size_t>(box.size())));
    left = left.subspan(static_cast<std::size_t>(box.size()));
    first += box.size();
  }
}

class Entries {
 public:
  Entries(const Checkpoint& published, const Quantisation& codes)
      : published_(published), codes_(codes), names_(NamesOf(codes.method)) {}

  std::vector<Entry> Take() {
    for (std::size_t index = 0; index < published_.tensors().size(); ++index)
      Add(static_cast<int64_t>(index));
    std::ranges::sort(found_, {}, [](const Entry& entry) { return entry.tensor.name; });
    return std::move(found_);
  }

 private:
  void Add(int64_t index) {
    const CheckpointTensor& tensor = published_.tensors()[static_cast<std::size_t>(index)];
    const bool coded = tensor.name.ends_with(names_.codes) && !tensor.coded.empty();
    if (coded) return AddMatrix(index, tensor);
    if (!IsAside(tensor.name)) found_.push_back({tensor, index, nullptr});
  }

  void AddMatrix(int64_t index, const CheckpointTensor& codes) {
    const std::string stem = codes.name.substr(0, codes.name.size() - names_.codes.size());
    CodedParts parts = {.name = stem + std::string(names_.values), .codes = index};
    for (const std::string_view scales : names_.scales) {
      if (parts.scales < 0) parts.scales = published_.FindExact(stem + std::string(scales));
    }
    parts.zeros = published_.FindExact(stem + std::string(names_.zeros));
    parts.groups = published_.FindExact(stem + std::string(names_.groups));
    Entry entry;
    entry.matrix = MakeCodedMatrix(published_, parts, codes_);
    entry.tensor.name = parts.name;
    entry.tensor.dtype = DType::kF32;
    entry.tensor.shape = entry.matrix->shape();
    entry.tensor.bytes = entry.matrix->rows() * entry.matrix->cols() * DTypeBytes(DType::kF32);
    const CodedMatrix::Holding holding = entry.matrix->holding();
    entry.tensor.held = holding.dtype;
    entry.tensor.why_decoded = holding.obstacle;
    entry.tensor.coded = codes_.method == CodeMethod::kMxfp4 ? "MXFP4" : codes.coded;
    found_.push_back(std::move(entry));
  }

  const Checkpoint& published_;
  Quantisation codes_;
  PartNames names_;
  std::vector<Entry> found_;
};

}  // namespace

std::unique_ptr<Checkpoint> DecodeCheckpoint(std::unique_ptr<Checkpoint> published,
                                             const Quantisation& codes) {
  std::vector<Entry> entries = Entries(*published, codes).Take();
  return std::make_unique<CodedCheckpoint>(std::move(published), std::move(entries));
}

bool HasMxfp4Experts(const Checkpoint& checkpoint) {
  bool any = false;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    if (tensor.shape.size() != 3 || tensor.name.find("experts") == std::string::npos) continue;
    if (tensor.coded != "MXFP4") return false;
    any = true;
  }
  return any;
}

}  // namespace spillway
