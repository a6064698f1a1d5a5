#include "src/checkpoint/torch_zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "spillway/error.h"
#include "src/checkpoint/crc32.h"
#include "src/checkpoint/element_type.h"
#include "src/checkpoint/file_kind.h"
#include "src/checkpoint/pickle_machine.h"
#include "src/checkpoint/zip_directory.h"

namespace spillway {
namespace {

using Kind = PickleValue::Kind;

[[noreturn]] void ThrowMalformed(const ModelFile& file, std::string_view what) {
  throw Error(ErrorCode::kModelMalformed,
              fmt::format("{}: {}; download it again", Printable(file.name()), what));
}

[[noreturn]] void ThrowUnsupported(const ModelFile& file, std::string_view what) {
  throw Error(ErrorCode::kModelUnsupported, fmt::format("{}: {}", Printable(file.name()), what));
}

const ZipEntry* FindEntry(const std::vector<ZipEntry>& entries, std::string_view name) {
  const auto at = std::ranges::lower_bound(
      entries, name, {}, [](const ZipEntry& entry) -> std::string_view { return entry.name; });
  return at != entries.end() && at->name == name ? &*at : nullptr;
}

std::string ReadSmallEntry(const ModelFile& file, const ZipEntry& entry, int64_t max_bytes) {
  const std::string name = Printable(entry.name);
  if (entry.bytes > max_bytes) {
    ThrowMalformed(file, fmt::format("\"{}\" has {} bytes, at most {} are read", name, entry.bytes,
                                     max_bytes));
  }
  std::string text(static_cast<std::size_t>(entry.bytes), '\0');
  file.ReadAt(entry.offset, std::as_writable_bytes(std::span(text)));
  if (Crc32(std::as_bytes(std::span(text))) != entry.crc) {
    ThrowMalformed(file, fmt::format("\"{}\" is damaged: its checksum differs", name));
  }
  return text;
}

// torch.save wrote a row of bare pickles before 1.6. An attack in the first one is named for what
// it is.
void RefuseBarePickle(const ModelFile& file) {
  const std::string start = file.ReadStart(kMaxPickleBytes);
  PickleHeap heap;
  try {
    PickleMachine(start, heap, file.name()).Run();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnsafe) throw;
  }
  ThrowUnsupported(file,
                   "PyTorch's format from before version 1.6, or a bare pickle; load it with "
                   "torch.load(weights_only="
                   "True) and save it with a recent torch.save");
}

void RefuseOtherKinds(const ModelFile& file) {
  const std::string start = file.ReadStart(512);
  if (start.starts_with("PK\x03\x04")) return;
  if (start.starts_with('\x80') || start.starts_with("c")) RefuseBarePickle(file);
  if (start.size() == 512 && std::string_view(start).substr(257, 5) == "ustar") {
    ThrowUnsupported(file,
                     "PyTorch's tar format from before version 0.2; load it and save it with a "
                     "recent torch.save");
  }
  throw Error(ErrorCode::kModelMalformed, NotExpectedKind(file, "a PyTorch file"));
}

// "archive/", where the pickle is "archive/data.pkl".
std::string ArchivePrefix(const ModelFile& file, const std::vector<ZipEntry>& entries) {
  constexpr std::string_view kPickle = "data.pkl";
  std::string prefix;
  std::size_t num_pickles = 0;
  for (const ZipEntry& entry : entries) {
    const std::size_t slash = entry.name.find('/');
    if (slash == std::string::npos || entry.name.substr(slash + 1) != kPickle) continue;
    prefix = entry.name.substr(0, slash + 1);
    ++num_pickles;
  }
  if (num_pickles != 1)
    ThrowMalformed(file, fmt::format("a zip archive with {} data.pkl instead of one", num_pickles));
  const bool script = FindEntry(entries, prefix + "constants.pkl") != nullptr ||
                      std::ranges::any_of(entries, [&](const ZipEntry& entry) {
                        return entry.name.starts_with(prefix + "code/");
                      });
  if (script)
    ThrowUnsupported(file,
                     "a TorchScript program, not weights; save model.state_dict() with torch.save");
  return prefix;
}

void CheckByteOrder(const ModelFile& file, const std::vector<ZipEntry>& entries,
                    const std::string& prefix) {
  const ZipEntry* order = FindEntry(entries, prefix + "byteorder");
  if (order == nullptr || ReadSmallEntry(file, *order, 64) == "little") return;
  ThrowUnsupported(file,
                   "was saved on a big-endian machine; load it and save it again on this one");
}

// Row-major without gaps; the strides of dimensions of size 1 mean nothing.
bool IsContiguous(const PickledTensor& tensor) {
  int64_t expected = 1;
  for (std::size_t at = tensor.sizes.size(); at > 0; --at) {
    if (tensor.sizes[at - 1] == 1) continue;
    if (tensor.strides[at - 1] != expected) return false;
    expected *= tensor.sizes[at - 1];  // the product was checked
  }
  return true;
}

// The last element's index plus one; nullopt when it leaves 63 bits or two elements share a place.
std::optional<int64_t> Extent(const PickledTensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> dimensions;  // stride, size
  for (std::size_t at = 0; at < tensor.sizes.size(); ++at) {
    if (tensor.sizes[at] > 1) dimensions.emplace_back(tensor.strides[at], tensor.sizes[at]);
  }
  std::ranges::sort(dimensions);
  int64_t extent = 1;
  for (const auto& [stride, size] : dimensions) {
    int64_t span = 0;
    if (stride < extent || __builtin_mul_overflow(stride, size - 1, &span) ||
        __builtin_add_overflow(extent, span, &extent)) {
      return std::nullopt;
    }
  }
  return extent;
}

// Maps the tensors of one archive to byte ranges of its file.
class TensorPlacer {
 public:
  TensorPlacer(const ModelFile& file, const std::vector<ZipEntry>& entries, std::string prefix)
      : file_(file), entries_(entries), prefix_(std::move(prefix)) {}

  StoredTensor Place(std::string_view name, const PickledTensor& tensor) const {
    const PickledStorage& storage = tensor.storage;
    if (!storage.dtype) ThrowUnsupportedDType(file_.name(), name, storage.element_type);
    const ZipEntry* entry = FindEntry(entries_, fmt::format("{}data/{}", prefix_, storage.key));
    if (entry == nullptr) Malformed(name, "its storage is missing");
    const int64_t element_bytes = DTypeBytes(*storage.dtype);
    if (entry->bytes % element_bytes != 0 || entry->bytes / element_bytes != storage.num_elements) {
      Malformed(name, fmt::format("its storage has {} bytes, not {} elements", entry->bytes,
                                  storage.num_elements));
    }
    const std::optional<int64_t> bytes = CheckedBytes(tensor.sizes, *storage.dtype);
    if (!bytes || tensor.strides.size() != tensor.sizes.size())
      Malformed(name, "its shape is impossible");
    CheckView(name, tensor, *bytes / element_bytes);
    return {{std::string(name), *storage.dtype, tensor.sizes, *bytes},
            entry->offset + tensor.offset * element_bytes};
  }

 private:
  [[noreturn]] void Malformed(std::string_view name, std::string_view what) const {
    ThrowMalformed(file_, fmt::format("tensor \"{}\": {}", Printable(name), what));
  }

  void CheckView(std::string_view name, const PickledTensor& tensor, int64_t num_elements) const {
    const bool negative =
        tensor.offset < 0 || std::ranges::any_of(tensor.strides, [](int64_t s) { return s < 0; });
    const std::optional<int64_t> extent = num_elements == 0 ? 0 : Extent(tensor);
    if (negative || !extent) Malformed(name, "its strides or offset are negative or overlap");
    if (tensor.offset > tensor.storage.num_elements ||
        *extent > tensor.storage.num_elements - tensor.offset) {
      Malformed(name, "it reaches beyond its storage");
    }
    if (num_elements == 0 || IsContiguous(tensor)) return;
    ThrowUnsupported(
        file_, fmt::format("tensor \"{}\" is a view that is not contiguous; save it again with "
                           ".contiguous()",
                           Printable(name)));
  }

  const ModelFile& file_;
  const std::vector<ZipEntry>& entries_;
  std::string prefix_;
};

std::vector<StoredTensor> PlaceTensors(const ModelFile& file, const PickleHeap& heap,
                                       PickleValue root, const TensorPlacer& placer) {
  if (root.kind != Kind::kDict)
    ThrowUnsupported(file, "holds no dictionary of tensors; save model.state_dict()");
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
  if (tensors.empty())
    ThrowUnsupported(file, "holds no tensors at its top level; save model.state_dict()");
  return tensors;
}

}  // namespace

Shard ReadTorchZip(ModelFile file) {
  RefuseOtherKinds(file);
  const std::vector<ZipEntry> entries = ReadZipDirectory(file);
  const std::string prefix = ArchivePrefix(file, entries);
  CheckByteOrder(file, entries, prefix);
  const std::string pickle =
      ReadSmallEntry(file, *FindEntry(entries, prefix + "data.pkl"), kMaxPickleBytes);
  PickleHeap heap;
  const PickleValue root = PickleMachine(pickle, heap, file.name()).Run();
  std::vector<StoredTensor> tensors =
      PlaceTensors(file, heap, root, TensorPlacer(file, entries, prefix));
  std::vector<ChecksummedRange> checksums;
  for (const ZipEntry& entry : entries) {
    if (entry.name.starts_with(prefix + "data/"))
      checksums.push_back({entry.name, entry.offset, entry.bytes, entry.crc});
  }
  return {std::move(file), std::move(tensors), std::move(checksums)};
}

}  // namespace spillway
