#include "src/checkpoint/torch_legacy.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "spillway/error.h"
#include "src/checkpoint/little_endian.h"
#include "src/checkpoint/pickle_machine.h"
#include "src/checkpoint/torch_tensors.h"

namespace spillway {
namespace {

using Kind = PickleValue::Kind;
using Places = std::map<std::string, StoragePlace, std::less<>>;  // by key

// The pickle of a magic number in protocol 2, the only one that torch chose by itself.
constexpr std::string_view kMagic = "\x80\x02\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19.";
constexpr int64_t kVersion = 1001;

std::string_view TextOf(const PickleHeap& heap, PickleValue value) {
  return value.kind == Kind::kString ? heap.strings[static_cast<std::size_t>(value.number)]
                                     : std::string_view();
}

// The third pickle describes the machine that wrote the file.
void CheckByteOrder(const ModelFile& file, const PickleHeap& heap, PickleValue machine) {
  if (machine.kind != Kind::kDict) ThrowMalformed(file, "a pickle without its machine");
  for (const auto& [key, value] : heap.dicts[static_cast<std::size_t>(machine.number)]) {
    if (TextOf(heap, key) == "little_endian" && value.kind == Kind::kBoolean && value.number == 1)
      return;
  }
  throw Error(ErrorCode::kModelUnsupported,
              fmt::format("{}: was saved on a big-endian machine; load it and save it again on "
                          "this one",
                          Printable(file.name())));
}

// Storages lie one after another in the order of their keys, the number of elements in front of
// each. Their types stand in the pickle of the tensors.
class StorageWalk {
 public:
  StorageWalk(const ModelFile& file, const PickleHeap& heap, int64_t begin)
      : file_(file), at_(begin) {
    for (const PickledStorage& storage : heap.storages) by_key_.emplace(storage.key, storage);
  }

  Places Walk(const PickleHeap& heap, PickleValue keys) {
    if (keys.kind != Kind::kList) ThrowMalformed(file_, "a pickle without the storages' keys");
    for (const PickleValue& value : heap.sequences[static_cast<std::size_t>(keys.number)])
      Add(TextOf(heap, value));
    return std::move(places_);
  }

 private:
  void Add(std::string_view key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) ThrowMalformed(file_, "a storage of no tensor");
    const auto& [type, name, num_elements] = found->second;
    int64_t bytes = 0;
    if (__builtin_mul_overflow(num_elements, type->bytes, &bytes) ||
        at_ > file_.size() - kCountBytes || bytes > file_.size() - kCountBytes - at_) {
      throw Error(
          ErrorCode::kModelTruncated,
          fmt::format("{}: ends at {}, within the storage \"{}\" of {} elements; download it "
                      "again",
                      Printable(file_.name()), file_.size(), Printable(key, 40), num_elements));
    }
    std::string count(kCountBytes, '\0');
    file_.ReadAt(at_, std::as_writable_bytes(std::span(count)));
    at_ += kCountBytes;
    if (LittleEndian<int64_t>(count, 0) != num_elements ||
        !places_.emplace(key, StoragePlace{at_, bytes}).second) {
      ThrowMalformed(
          file_, fmt::format("the storage \"{}\" is not what its tensor says", Printable(key, 40)));
    }
    at_ += bytes;
  }

  static constexpr int64_t kCountBytes = 8;

  const ModelFile& file_;
  std::map<std::string_view, PickledStorage> by_key_;
  Places places_;
  int64_t at_;
};

}  // namespace

bool IsTorchLegacy(const ModelFile& file) {
  return file.ReadStart(static_cast<int64_t>(kMagic.size())) == kMagic;
}

WeightsFile ReadTorchLegacy(ModelFile file) {
  const std::string text = file.ReadStart(kMaxPickleBytes);
  std::string_view rest = std::string_view(text).substr(kMagic.size());
  PickleHeap machine_heap;
  PickleHeap heap;
  PickleHeap keys_heap;
  const PickleValue version = PickleMachine(rest, machine_heap, file.name()).RunFirst(rest);
  if (version.kind != Kind::kInteger || version.number != kVersion)
    ThrowMalformed(file, "a form of torch.save of no known version");
  CheckByteOrder(file, machine_heap, PickleMachine(rest, machine_heap, file.name()).RunFirst(rest));
  const PickleValue root = PickleMachine(rest, heap, file.name()).RunFirst(rest);
  const PickleValue keys = PickleMachine(rest, keys_heap, file.name()).RunFirst(rest);
  const auto begin = static_cast<int64_t>(text.size() - rest.size());
  const Places places = StorageWalk(file, heap, begin).Walk(keys_heap, keys);
  const StorageFinder find = [&](std::string_view key) -> std::optional<StoragePlace> {
    const auto found = places.find(key);
    return found == places.end() ? std::nullopt : std::optional(found->second);
  };
  std::vector<StoredTensor> tensors = PlaceTensors(file, heap, root, find);
  return {std::move(file), std::move(tensors), {}, "torch before 1.6"};
}

}  // namespace spillway
