#include "src/checkpoint/numpy_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "spillway/error.h"
#include "src/checkpoint/npy_header.h"
#include "src/checkpoint/weight_map.h"

namespace spillway {
namespace {

constexpr std::string_view kFamily = "opt";   // FlexGen made such folders of no other
constexpr std::string_view kSuffix = ".npy";  // optional

// The name of the tensor in the file `name`; empty when it is none. Hidden files are not the
// model's: macOS puts "._NAME" beside NAME.
std::string_view TensorName(std::string_view name) {
  if (name.starts_with('.')) return {};
  if (name.ends_with(kSuffix)) name.remove_suffix(kSuffix.size());
  return name.ends_with(".weight") || name.ends_with(".bias") ? name : std::string_view();
}

class NumpyFolder : public Checkpoint {
 public:
  explicit NumpyFolder(ModelFolder folder);

  std::string_view format() const override { return "numpy folder"; }
  const std::vector<CheckpointTensor>& tensors() const override { return tensors_; }
  void Read(int64_t index, int64_t offset, std::span<std::byte> out) const override;
  void VisitFiles(const std::function<void(const ModelFile&)>& visit) const override {
    for (const Place& place : places_) visit(Open(place));
  }

 private:
  void Add(std::string tensor, std::string file);

  struct Place {
    std::string file;
    int64_t offset;
    FileIdentity identity;
  };

  // Throws: Error kCorrupt when it is no longer the file whose header was read.
  ModelFile Open(const Place& place) const;

  ModelFolder folder_;
  std::vector<CheckpointTensor> tensors_;
  std::vector<Place> places_;  // of tensors_[i]
};

NumpyFolder::NumpyFolder(ModelFolder folder) : folder_(std::move(folder)) {
  std::vector<std::pair<std::string, std::string>> names;  // tensor, file
  for (const std::string& file : folder_.List()) {
    if (const std::string_view tensor = TensorName(file); !tensor.empty())
      names.emplace_back(tensor, file);
  }
  std::ranges::sort(names);
  for (auto& [tensor, file] : names) {
    if (!tensors_.empty() && tensors_.back().name == tensor) {
      throw Error(ErrorCode::kModelInconsistent,
                  fmt::format("{}: holds the same tensor as {}; remove one", Printable(file),
                              Printable(places_.back().file)));
    }
    Add(std::move(tensor), std::move(file));
  }
}

// An array of a form that is not read matters only to whoever needs it.
void NumpyFolder::Add(std::string tensor, std::string file) {
  const ModelFile open = folder_.Open(file);
  NpyHeader header;
  std::string refusal;
  try {
    header = ReadNpyHeader(open);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kModelUnsupported) throw;
    refusal = error.what();
  }
  tensors_.push_back(
      {std::move(tensor), header.dtype, std::move(header.shape), header.bytes, std::move(refusal)});
  places_.push_back({std::move(file), header.offset, open.identity()});
}

void NumpyFolder::Read(int64_t index, int64_t offset, std::span<std::byte> out) const {
  const CheckpointTensor& tensor = tensors_.at(static_cast<std::size_t>(index));
  SPILLWAY_CHECK(offset >= 0 && static_cast<int64_t>(out.size()) <= tensor.bytes - offset);
  const Place& place = places_[static_cast<std::size_t>(index)];
  Open(place).ReadAt(place.offset + offset, out);
}

ModelFile NumpyFolder::Open(const Place& place) const {
  ModelFile file = folder_.Open(place.file);
  if (file.identity() == place.identity) return file;
  throw Error(ErrorCode::kCorrupt,
              fmt::format("{}: the file changed while it was in use; leave model files alone "
                          "during a run, then give the same command again",
                          Printable(place.file)));
}

bool HasShape(const Model& model, const Checkpoint& checkpoint, TensorRef ref) {
  const TensorSpec& spec = model.Tensor(ref);
  const int64_t index = FindWeight(model, checkpoint, ref);
  return index >= 0 && checkpoint.tensors()[static_cast<std::size_t>(index)].shape ==
                           std::vector{spec.rows, spec.cols};
}

// Tensors that tell all built-in shapes apart: tables, and the matrices to the inner width.
// ResolveWeights looks at the rest.
std::vector<TensorRef> TellingTensors(const Model& model) {
  std::vector<TensorRef> telling;
  for (const LayerSpec& layer : model.layers) {
    for (const Op& op : layer.ops) {
      const auto* gather = std::get_if<Gather>(&op);
      const auto* linear = std::get_if<Linear>(&op);
      if (gather != nullptr) telling.push_back(gather->table);
      if (linear != nullptr && linear->y.buf == Buf::kInner) telling.push_back(linear->weight);
    }
  }
  return telling;
}

// Nullopt where the name is no built-in shape's, or one's of another family.
std::optional<ModelShape> ShapeNamed(std::string_view name) {
  std::optional<ModelShape> shape = BuiltInShape(name);
  return shape && shape->family == kFamily ? std::move(shape) : std::nullopt;
}

bool Fits(const Model& model, const Checkpoint& checkpoint) {
  return checkpoint.Find(fmt::format("decoder.layers.{}.fc1.weight", model.shape.num_layers)) < 0 &&
         std::ranges::all_of(TellingTensors(model),
                             [&](TensorRef ref) { return HasShape(model, checkpoint, ref); });
}

}  // namespace

bool IsNumpyFolder(const ModelFolder& folder) {
  // A tied pair may be there under the head's name alone.
  constexpr std::array kNames = {"decoder.embed_tokens.weight", "model.decoder.embed_tokens.weight",
                                 "lm_head.weight"};
  return std::ranges::any_of(kNames, [&](const std::string& name) {
    return folder.Has(name) || folder.Has(name + std::string(kSuffix));
  });
}

std::unique_ptr<Checkpoint> OpenNumpyFolder(ModelFolder folder) {
  return std::make_unique<NumpyFolder>(std::move(folder));
}

std::optional<ModelShape> NumpyFolderShape(const ModelFolder& folder) {
  if (!IsNumpyFolder(folder)) return std::nullopt;
  std::string_view name = folder.name();
  if (name.ends_with("-np")) name.remove_suffix(3);
  if (std::optional<ModelShape> shape = ShapeNamed(name)) return shape;
  const std::unique_ptr<Checkpoint> checkpoint = OpenNumpyFolder(ModelFolder(folder.path()));
  for (const std::string& candidate : BuiltInShapeNames()) {
    std::optional<ModelShape> shape = ShapeNamed(candidate);
    if (shape && Fits(MakeModel(*shape), *checkpoint)) return shape;
  }
  throw Error(
      ErrorCode::kModelMissing,
      fmt::format(
          "{}: has no config.json, and its tensors are those of no built-in shape; add the model's "
          "config.json",
          Printable(folder.path().string(), 120)));
}

}  // namespace spillway
