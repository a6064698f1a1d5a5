#include "src/checkpoint/torch_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>

#include "spillway/error.h"
#include "src/checkpoint/element_type.h"

namespace spillway {
namespace {

using Kind = PickleValue::Kind;

// Elements of a view that repeats its storage's: more than any vector has, and few enough that a
// small file cannot ask for much memory.
constexpr int64_t kMaxRepeated = 1 << 24;

struct Dimension {
  int64_t size;
  int64_t stride;
};

// Dimensions of more than one element, neighbours that are as one taken together.
std::vector<Dimension> Simplified(const PickledTensor& tensor) {
  std::vector<Dimension> dimensions;
  for (std::size_t at = 0; at < tensor.sizes.size(); ++at) {
    const Dimension inner = {tensor.sizes[at], tensor.strides[at]};
    if (inner.size == 1) continue;
    int64_t step = 0;
    const bool joins = !dimensions.empty() &&
                       !__builtin_mul_overflow(inner.stride, inner.size, &step) &&
                       dimensions.back().stride == step;
    if (joins) {
      dimensions.back() = {dimensions.back().size * inner.size, inner.stride};
    } else {
      dimensions.push_back(inner);
    }
  }
  return dimensions;
}

// The last element's index plus one; nullopt when it leaves 63 bits.
std::optional<int64_t> Extent(const std::vector<Dimension>& dimensions) {
  int64_t extent = 1;
  for (const auto& [size, stride] : dimensions) {
    int64_t span = 0;
    if (__builtin_mul_overflow(stride, size - 1, &span) ||
        __builtin_add_overflow(extent, span, &extent)) {
      return std::nullopt;
    }
  }
  return extent;
}

// Requires: at most two dimensions.
ElementLayout LayoutOf(const std::vector<Dimension>& dimensions, int64_t element_bytes) {
  ElementLayout layout{.element_bytes = element_bytes};
  if (dimensions.empty()) return layout;
  layout.cols = dimensions.back().size;
  layout.col_stride = dimensions.back().stride;
  if (dimensions.size() == 2) layout.row_stride = dimensions.front().stride;
  return layout;
}

class TensorPlacer {
 public:
  TensorPlacer(const ModelFile& file, const StorageFinder& find) : file_(file), find_(find) {}

  StoredTensor Place(std::string_view name, const PickledTensor& tensor) const {
    StoredTensor stored;
    stored.tensor.name = name;
    stored.tensor.shape = tensor.sizes;
    if (!tensor.type.dtype) {
      const std::string_view clazz = tensor.type.clazz;
      stored.tensor.refusal =
          UnreadType(file_.name(), name, clazz.empty() ? tensor.type.name : clazz);
      return stored;
    }
    stored.tensor.dtype = *tensor.type.dtype;
    const StoragePlace storage = FindStorage(name, tensor.storage);
    const std::optional<int64_t> bytes = CheckedBytes(tensor.sizes, tensor.type.bytes);
    if (!bytes || tensor.strides.size() != tensor.sizes.size())
      Malformed(name, "its shape is impossible");
    const int64_t count = *bytes / tensor.type.bytes;
    stored.tensor.bytes = count * DTypeBytes(stored.tensor.dtype);
    SetView(tensor, count, storage, stored);
    return stored;
  }

 private:
  [[noreturn]] void Malformed(std::string_view name, std::string_view what) const {
    ThrowMalformed(file_, fmt::format("tensor \"{}\": {}", Printable(name), what));
  }

  StoragePlace FindStorage(std::string_view name, const PickledStorage& storage) const {
    const std::optional<StoragePlace> place = find_(storage.key);
    if (!place) Malformed(name, "its storage is missing");
    const int64_t element_bytes = storage.type->bytes;
    if (place->bytes % element_bytes != 0 || place->bytes / element_bytes != storage.num_elements) {
      Malformed(name, fmt::format("its storage has {} bytes, not {} elements", place->bytes,
                                  storage.num_elements));
    }
    return *place;
  }

  void SetView(const PickledTensor& tensor, int64_t count, const StoragePlace& storage,
               StoredTensor& stored) const {
    const std::string& name = stored.tensor.name;
    if (tensor.offset < 0 ||
        std::ranges::any_of(tensor.strides, [](int64_t stride) { return stride < 0; }))
      Malformed(name, "its strides or offset are negative");
    const int64_t held = storage.bytes / tensor.type.bytes;
    const std::vector<Dimension> dimensions =
        count == 0 ? std::vector<Dimension>() : Simplified(tensor);
    const std::optional<int64_t> extent = count == 0 ? 0 : Extent(dimensions);
    if (!extent || tensor.offset > held || *extent > held - tensor.offset)
      Malformed(name, "it reaches beyond its storage");
    stored.offset = storage.offset + tensor.offset * tensor.type.bytes;
    const bool in_order =
        dimensions.empty() || (dimensions.size() == 1 && dimensions.front().stride == 1);
    if (dimensions.size() > 2 || (count > held && count > kMaxRepeated)) {
      stored.tensor.refusal = fmt::format(
          "{}: tensor \"{}\" is a view that is neither rows nor columns; save it again with "
          ".contiguous()",
          Printable(file_.name()), Printable(name));
      stored.tensor.bytes = 0;
    } else if (!in_order || tensor.type.is_fp64()) {
      stored.layout =
          std::make_unique<const ElementLayout>(LayoutOf(dimensions, tensor.type.bytes));
    }
  }

  const ModelFile& file_;
  const StorageFinder& find_;
};

}  // namespace

std::vector<StoredTensor> PlaceTensors(const ModelFile& file, const PickleHeap& heap,
                                       PickleValue root, const StorageFinder& find) {
  const auto refuse = [&](std::string_view what) {
    throw Error(ErrorCode::kModelUnsupported,
                fmt::format("{}: {}; save model.state_dict()", Printable(file.name()), what));
  };
  if (root.kind != Kind::kDict) refuse("holds no dictionary of tensors");
  const TensorPlacer placer(file, find);
  std::vector<StoredTensor> tensors;
  std::unordered_set<std::string_view> names;
  for (const auto& [key, value] : heap.dicts[static_cast<std::size_t>(root.number)]) {
    if (value.kind != Kind::kTensor) continue;
    if (key.kind != Kind::kString) ThrowMalformed(file, "a tensor whose name is not a string");
    const std::string_view name = heap.strings[static_cast<std::size_t>(key.number)];
    if (!names.insert(name).second)
      ThrowMalformed(file, fmt::format("duplicate tensor \"{}\"", Printable(name)));
    tensors.push_back(placer.Place(name, heap.tensors[static_cast<std::size_t>(value.number)]));
  }
  if (tensors.empty()) refuse("holds no tensors at its top level");
  return tensors;
}

}  // namespace spillway
