#include "src/gguf/gguf_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "spillway/error.h"
#include "spillway/round.h"
#include "src/checkpoint/element_type.h"
#include "src/gguf/gguf_tensor_map.h"
#include "src/gguf/gguf_type.h"

namespace spillway {
namespace {

// Rows of the file are those of a head's halves in turn: this many of them make a half; 0: rows are
// in order.
struct RowOrder {
  int64_t half = 0;

  // The file's row of one of ours.
  int64_t FileRow(int64_t row) const {
    if (half == 0) return row;
    const int64_t head = row / (2 * half);
    const int64_t place = row % (2 * half);
    return head * 2 * half + place % half * 2 + place / half;
  }
};

struct Place {
  std::size_t file = 0;
  int64_t offset = 0;
  int64_t cols = 0;
  const GgufType* type = nullptr;
  RowOrder rows;
  bool one_added = false;
};

struct Entry {
  CheckpointTensor tensor;
  Place place;
};

std::string_view WhyDecoded(const GgufType& type) {
  return type.name == "MXFP4" ? "is in MXFP4, which is held in experts alone, if all are"
                              : "is in Q5_1, which is not held";
}

class GgufCheckpoint : public Checkpoint {
 public:
  GgufCheckpoint(std::vector<ModelFile> files, std::vector<Entry> entries)
      : files_(std::move(files)) {
    for (Entry& entry : entries) {
      tensors_.push_back(std::move(entry.tensor));
      places_.push_back(entry.place);
    }
  }

  std::string_view format() const override { return "GGUF"; }
  const std::vector<CheckpointTensor>& tensors() const override { return tensors_; }
  void Read(int64_t index, int64_t offset, std::span<std::byte> out) const override;
  void ReadRows(int64_t index, int64_t first_row, std::span<std::byte> out) const override;
  void VisitFiles(const std::function<void(const ModelFile&)>& visit) const override {
    for (const ModelFile& file : files_) visit(file);
  }

 private:
  void ReadElements(const Place& place, int64_t first, std::span<std::byte> out) const;
  void ReadRun(const Place& place, int64_t first, std::span<std::byte> out) const;
  void ReadBlocks(const Place& place, int64_t first, std::span<float> out) const;

  std::vector<ModelFile> files_;
  std::vector<CheckpointTensor> tensors_;
  std::vector<Place> places_;  // of tensors_[i]
};

std::span<float> Floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

void GgufCheckpoint::Read(int64_t index, int64_t offset, std::span<std::byte> out) const {
  const Place& place = places_[static_cast<std::size_t>(index)];
  const int64_t bytes = DTypeBytes(place.type->dtype);
  const int64_t end = offset + static_cast<int64_t>(out.size());
  if (offset % bytes == 0 && end % bytes == 0) return ReadElements(place, offset / bytes, out);
  std::vector<std::byte> whole(
      static_cast<std::size_t>(RoundUp(end, bytes) - offset / bytes * bytes));
  ReadElements(place, offset / bytes, whole);
  std::copy_n(whole.begin() + offset % bytes, out.size(), out.begin());
}

void GgufCheckpoint::ReadRows(int64_t index, int64_t first_row, std::span<std::byte> out) const {
  const Place& place = places_[static_cast<std::size_t>(index)];
  const GgufType& type = *place.type;
  const auto held_bytes = static_cast<std::size_t>(RowBytes(*type.held, place.cols));
  std::vector<std::byte> blocks(
      static_cast<std::size_t>(place.cols / type.block_values * type.block_bytes));
  for (int64_t row = first_row; !out.empty(); ++row, out = out.subspan(held_bytes)) {
    const int64_t file_row = place.rows.FileRow(row);
    files_[place.file].ReadAt(place.offset + file_row * std::ssize(blocks), blocks);
    if (HoldBlocks(type, blocks, out.first(held_bytes))) continue;
    const CheckpointTensor& tensor = tensors_[static_cast<std::size_t>(index)];
    throw Error(
        ErrorCode::kModelUnsupported,
        fmt::format("tensor \"{}\": its {} has scales too large to be held as they are; give "
                    "--weight-bits 16",
                    Printable(tensor.name), type.name));
  }
}

// Elements of the tensor as it was published, from number `first` on. Requires: out is whole ones.
void GgufCheckpoint::ReadElements(const Place& place, int64_t first,
                                  std::span<std::byte> out) const {
  const int64_t bytes = DTypeBytes(place.type->dtype);
  const std::span<std::byte> whole = out;
  if (place.rows.half == 0) ReadRun(place, first, std::exchange(out, {}));
  while (!out.empty()) {
    const int64_t row = first / place.cols;
    const int64_t col = first % place.cols;
    const int64_t count = std::min(static_cast<int64_t>(out.size()) / bytes, place.cols - col);
    const std::span<std::byte> part = out.first(static_cast<std::size_t>(count * bytes));
    ReadRun(place, place.rows.FileRow(row) * place.cols + col, part);
    out = out.subspan(part.size());
    first += count;
  }
  if (!place.one_added) return;
  for (float& value : Floats(whole)) value -= 1;
}

// Neighbours in the file, from the `first` of its elements on.
void GgufCheckpoint::ReadRun(const Place& place, int64_t first, std::span<std::byte> out) const {
  if (place.type->IsBlock()) return ReadBlocks(place, first, Floats(out));
  files_[place.file].ReadAt(place.offset + first * DTypeBytes(place.type->dtype), out);
}

void GgufCheckpoint::ReadBlocks(const Place& place, int64_t first, std::span<float> out) const {
  constexpr int64_t kBlocksAtOnce = 256;
  const GgufType& type = *place.type;
  const int64_t end = first + static_cast<int64_t>(out.size());
  const int64_t end_block = DivideUp(end, type.block_values);
  std::vector<std::byte> blocks;
  std::vector<float> values;
  for (int64_t block = first / type.block_values; block < end_block; block += kBlocksAtOnce) {
    const int64_t count = std::min(kBlocksAtOnce, end_block - block);
    blocks.resize(static_cast<std::size_t>(count * type.block_bytes));
    values.resize(static_cast<std::size_t>(count * type.block_values));
    files_[place.file].ReadAt(place.offset + block * type.block_bytes, blocks);
    DecodeBlocks(type, blocks, values);
    const int64_t begin = block * type.block_values;
    const int64_t from = std::max(first, begin);
    const int64_t to = std::min(end, begin + static_cast<int64_t>(values.size()));
    std::copy(values.begin() + (from - begin), values.begin() + (to - begin),
              out.begin() + (from - first));
  }
}

// Makes the entries of a model's files.
class Entries {
 public:
  explicit Entries(const std::vector<GgufFile>& files)
      : files_(files), metadata_(files.front().metadata) {}

  std::vector<Entry> Take() {
    for (std::size_t file = 0; file < files_.size(); ++file) {
      for (const GgufTensor& tensor : files_[file].tensors) Add(file, tensor);
    }
    std::ranges::sort(found_, {}, [](const Entry& entry) { return entry.tensor.name; });
    const auto twice = std::ranges::adjacent_find(
        found_, {}, [](const Entry& entry) { return entry.tensor.name; });
    if (twice != found_.end()) {
      throw Error(ErrorCode::kModelInconsistent,
                  fmt::format("{}: tensor \"{}\" is there twice; download it again",
                              Printable(metadata_.source()), Printable(twice->tensor.name)));
    }
    return std::move(found_);
  }

 private:
  void Add(std::size_t file, const GgufTensor& tensor) {
    const std::optional<PublishedName> name =
        PublishedNameOf(metadata_.Text("general.architecture"), tensor.name);
    if (!name) return;
    Entry entry;
    entry.tensor.name = name->name;
    entry.tensor.shape = tensor.shape;
    entry.place.file = file;
    entry.place.offset = tensor.offset;
    entry.place.cols = tensor.shape.back();
    entry.place.type = FindGgufType(tensor.type);
    if (entry.place.type == nullptr) {
      entry.tensor.refusal =
          fmt::format("tensor \"{}\" is of the type {}; read are {}", Printable(tensor.name),
                      GgufTypeName(tensor.type), ReadGgufTypes());
    } else {
      Measure(tensor, entry);
      SetChange(name->change, entry);
    }
    found_.push_back(std::move(entry));
  }

  void Measure(const GgufTensor& tensor, Entry& entry) const {
    const GgufType& type = *entry.place.type;
    const ModelFile& file = files_[entry.place.file].file;
    entry.tensor.dtype = type.dtype;
    if (type.IsBlock()) {
      entry.tensor.coded = type.name;
      if (tensor.shape.size() > 1) entry.tensor.held = type.held;  // no vector is held so
      if (!type.held) entry.tensor.why_decoded = WhyDecoded(type);
    }
    const auto bytes = CheckedBytes(tensor.shape, DTypeBytes(type.dtype));
    if (!bytes || entry.place.cols % type.block_values != 0) {
      metadata_.Refuse(fmt::format("tensor \"{}\": a shape that {} does not allow",
                                   Printable(tensor.name), type.name));
    }
    entry.tensor.bytes = *bytes;
    const int64_t elements = *bytes / DTypeBytes(type.dtype);
    const int64_t end = tensor.offset + elements / type.block_values * type.block_bytes;
    if (end <= file.size()) return;
    throw Error(ErrorCode::kModelTruncated,
                fmt::format("{}: tensor \"{}\" needs bytes {}-{} but the file ends at {}; "
                            "download it again",
                            Printable(file.name()), Printable(tensor.name), tensor.offset, end,
                            file.size()));
  }

  void SetChange(GgufChange change, Entry& entry) const {
    if (change == GgufChange::kOneAdded) {
      if (entry.tensor.dtype != DType::kF32)
        metadata_.Refuse(fmt::format("norm \"{}\" is not F32", Printable(entry.tensor.name)));
      entry.place.one_added = true;
    }
    if (change == GgufChange::kRowAlone && entry.tensor.shape.size() == 1)
      entry.tensor.shape.insert(entry.tensor.shape.begin(), 1);
    if (change != GgufChange::kPairsTogether) return;
    const bool keys = entry.tensor.name.find("k_proj") != std::string::npos;
    const std::string architecture = metadata_.Text("general.architecture");
    const std::string name = architecture + ".attention.head_count";
    const int64_t all = metadata_.Count(name);
    const auto of_keys =
        metadata_.FindLayersCount(name + "_kv", metadata_.Count(architecture + ".block_count"));
    const int64_t heads = keys ? of_keys.value_or(all) : all;
    const int64_t rows = entry.tensor.shape.front();
    if (heads <= 0 || rows % (2 * heads) != 0)
      metadata_.Refuse(fmt::format("tensor \"{}\" has {} rows for {} heads",
                                   Printable(entry.tensor.name), rows, heads));
    entry.place.rows.half = rows / heads / 2;
    if (entry.tensor.shape.size() == 1) entry.place.cols = 1;  // a bias: elements are rows
  }

  const std::vector<GgufFile>& files_;
  const GgufMetadata& metadata_;
  std::vector<Entry> found_;
};

}  // namespace

std::unique_ptr<Checkpoint> MakeGgufCheckpoint(std::vector<GgufFile> files) {
  std::vector<Entry> entries = Entries(files).Take();
  std::vector<ModelFile> opened;
  for (GgufFile& file : files) opened.push_back(std::move(file.file));
  return std::make_unique<GgufCheckpoint>(std::move(opened), std::move(entries));
}

}  // namespace spillway
