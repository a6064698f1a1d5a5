#include "src/checkpoint/torch_objects.h"

#include <fmt/format.h>

#include <array>

#include "spillway/error.h"

namespace spillway {
namespace {

using Kind = PickleValue::Kind;

enum class Role { kOrderedDict, kRebuildTensor, kRebuildParameter, kSize, kStorageType };

struct TorchGlobal {
  std::string_view module;
  std::string_view name;
  Role role;
  std::optional<DType> dtype = std::nullopt;  // of a storage type that we can hold
};

constexpr std::array kTorchGlobals = {
    TorchGlobal{"collections", "OrderedDict", Role::kOrderedDict},
    TorchGlobal{"torch._utils", "_rebuild_tensor_v2", Role::kRebuildTensor},
    TorchGlobal{"torch._utils", "_rebuild_parameter", Role::kRebuildParameter},
    TorchGlobal{"torch", "Size", Role::kSize},
    TorchGlobal{"torch", "HalfStorage", Role::kStorageType, DType::kF16},
    TorchGlobal{"torch", "BFloat16Storage", Role::kStorageType, DType::kBF16},
    TorchGlobal{"torch", "FloatStorage", Role::kStorageType, DType::kF32},
    TorchGlobal{"torch", "DoubleStorage", Role::kStorageType},
    TorchGlobal{"torch", "LongStorage", Role::kStorageType},
    TorchGlobal{"torch", "IntStorage", Role::kStorageType},
    TorchGlobal{"torch", "ShortStorage", Role::kStorageType},
    TorchGlobal{"torch", "CharStorage", Role::kStorageType},
    TorchGlobal{"torch", "ByteStorage", Role::kStorageType},
    TorchGlobal{"torch", "BoolStorage", Role::kStorageType},
};

const TorchGlobal& GlobalOf(PickleValue value) {
  return kTorchGlobals[static_cast<std::size_t>(value.number)];
}

}  // namespace

void TorchObjects::ThrowMalformed(std::string_view what) const {
  throw Error(ErrorCode::kModelMalformed,
              fmt::format("{}: the pickle has {}; download it again", Printable(source_), what));
}

PickleValue TorchObjects::Global(std::string_view module, std::string_view name) const {
  for (std::size_t at = 0; at < kTorchGlobals.size(); ++at) {
    if (kTorchGlobals[at].module == module && kTorchGlobals[at].name == name) {
      return {Kind::kGlobal, static_cast<int64_t>(at)};
    }
  }
  throw Error(
      ErrorCode::kUnsafe,
      fmt::format(
          "{}: the pickle refers to {}.{}, which no weights need; nothing of it was run; use a "
          "safetensors version of the model",
          Printable(source_), Printable(module, 60), Printable(name, 60)));
}

const std::vector<PickleValue>& TorchObjects::Tuple(PickleValue value,
                                                    std::string_view what) const {
  if (value.kind != Kind::kTuple) ThrowMalformed(fmt::format("no tuple where {} belong", what));
  return heap_.sequences[static_cast<std::size_t>(value.number)];
}

std::vector<int64_t> TorchObjects::Integers(PickleValue value, std::string_view what) const {
  constexpr std::size_t kMaxDimensions = 64;  // torch's own limit
  std::vector<int64_t> numbers;
  for (const PickleValue& element : Tuple(value, what)) {
    if (element.kind != Kind::kInteger || numbers.size() == kMaxDimensions) {
      ThrowMalformed(fmt::format("bad {} of a tensor", what));
    }
    numbers.push_back(element.number);
  }
  return numbers;
}

// (storage, storage_offset, size, stride, requires_grad, backward_hooks[, metadata])
PickleValue TorchObjects::RebuildTensor(const std::vector<PickleValue>& arguments) {
  const bool usable = (arguments.size() == 6 || arguments.size() == 7) &&
                      arguments[0].kind == Kind::kStorage && arguments[1].kind == Kind::kInteger;
  if (!usable) ThrowMalformed("a tensor with wrong arguments");
  return AddToHeap(Kind::kTensor, heap_.tensors,
                   PickledTensor{heap_.storages[static_cast<std::size_t>(arguments[0].number)],
                                 arguments[1].number, Integers(arguments[2], "sizes"),
                                 Integers(arguments[3], "strides")});
}

PickleValue TorchObjects::Call(PickleValue callable, PickleValue arguments) {
  if (callable.kind != Kind::kGlobal || GlobalOf(callable).role == Role::kStorageType) {
    throw Error(ErrorCode::kUnsafe,
                fmt::format("{}: the pickle calls {}; nothing of it was run; use a safetensors "
                            "version of the model",
                            Printable(source_),
                            callable.kind == Kind::kGlobal ? GlobalOf(callable).name
                                                           : "what is not a function"));
  }
  const std::vector<PickleValue>& list = Tuple(arguments, "arguments");
  switch (GlobalOf(callable).role) {
    case Role::kRebuildTensor:
      return RebuildTensor(list);
    case Role::kRebuildParameter:  // (tensor, requires_grad, backward_hooks)
      if (list.size() != 3 || list[0].kind != Kind::kTensor)
        ThrowMalformed("a parameter with wrong arguments");
      return list[0];
    case Role::kSize:
      if (list.size() != 1 || list[0].kind != Kind::kTuple)
        ThrowMalformed("a size with wrong arguments");
      return list[0];
    case Role::kOrderedDict:
      // Python 2 gave it a list of pairs; torch never wrote a filled one.
      if (!list.empty()) ThrowMalformed("an OrderedDict with arguments");
      return AddToHeap(Kind::kDict, heap_.dicts, {});
    case Role::kStorageType:
      break;
  }
  SPILLWAY_CHECK(false);
}

PickleValue TorchObjects::Storage(PickleValue id) {
  const std::vector<PickleValue>& parts = Tuple(id, "storages");
  const bool usable = parts.size() == 5 && parts[0].kind == Kind::kString &&
                      heap_.strings[static_cast<std::size_t>(parts[0].number)] == "storage" &&
                      parts[1].kind == Kind::kGlobal &&
                      GlobalOf(parts[1]).role == Role::kStorageType &&
                      parts[2].kind == Kind::kString && parts[3].kind == Kind::kString &&
                      parts[4].kind == Kind::kInteger && parts[4].number >= 0;
  if (!usable) ThrowMalformed("a storage that is not torch's");
  const TorchGlobal& type = GlobalOf(parts[1]);
  return AddToHeap(
      Kind::kStorage, heap_.storages,
      PickledStorage{type.name, type.dtype,
                     heap_.strings[static_cast<std::size_t>(parts[2].number)], parts[4].number});
}

}  // namespace spillway
