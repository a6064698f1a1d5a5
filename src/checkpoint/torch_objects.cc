#include "src/checkpoint/torch_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "spillway/error.h"

namespace spillway {
namespace {

using Kind = PickleValue::Kind;

// Names of torch.load(weights_only=True), which run nothing.
struct TorchGlobal {
  std::string_view module;
  std::string_view name;
  TorchRole role;
};

constexpr std::array kTorchGlobals = {
    TorchGlobal{"collections", "OrderedDict", TorchRole::kOrderedDict},
    TorchGlobal{"torch._utils", "_rebuild_tensor", TorchRole::kTensor},
    TorchGlobal{"torch._utils", "_rebuild_tensor_v2", TorchRole::kTensor},
    TorchGlobal{"torch._utils", "_rebuild_tensor_v3", TorchRole::kTypedTensor},
    TorchGlobal{"torch._utils", "_rebuild_qtensor", TorchRole::kQuantisedTensor},
    TorchGlobal{"torch._utils", "_rebuild_sparse_tensor", TorchRole::kSparseTensor},
    TorchGlobal{"torch._utils", "_rebuild_parameter", TorchRole::kParameter},
    TorchGlobal{"torch._utils", "_rebuild_parameter_with_state", TorchRole::kParameter},
    TorchGlobal{"torch._tensor", "_rebuild_from_type_v2", TorchRole::kTensorWithState},
    TorchGlobal{"torch", "Size", TorchRole::kSize},
    TorchGlobal{"torch", "Tensor", TorchRole::kConstant},
    TorchGlobal{"torch.nn.parameter", "Parameter", TorchRole::kConstant},
    TorchGlobal{"torch", "per_tensor_affine", TorchRole::kConstant},
    TorchGlobal{"torch", "per_tensor_symmetric", TorchRole::kConstant},
    TorchGlobal{"torch", "per_channel_affine", TorchRole::kConstant},
    TorchGlobal{"torch", "per_channel_symmetric", TorchRole::kConstant},
    TorchGlobal{"torch", "per_channel_affine_float_qparams", TorchRole::kConstant},
    TorchGlobal{"torch", "device", TorchRole::kPlainValue},
    TorchGlobal{"torch.serialization", "_get_layout", TorchRole::kPlainValue},
    TorchGlobal{"collections", "Counter", TorchRole::kPlainValue},
    TorchGlobal{"_codecs", "encode", TorchRole::kPlainValue},
    TorchGlobal{"builtins", "bytearray", TorchRole::kPlainValue},
    TorchGlobal{"builtins", "complex", TorchRole::kPlainValue},
    TorchGlobal{"builtins", "set", TorchRole::kPlainValue},
    TorchGlobal{"__builtin__", "bytearray", TorchRole::kPlainValue},
    TorchGlobal{"__builtin__", "complex", TorchRole::kPlainValue},
    TorchGlobal{"__builtin__", "set", TorchRole::kPlainValue},
};

std::optional<PickledGlobal> FindGlobal(std::string_view module, std::string_view name) {
  if (module == "torch") {
    if (const TorchType* type = FindStorageClass(name))
      return PickledGlobal{TorchRole::kStorageType, type->clazz, type};
    if (const TorchType* type = FindTorchType(name))
      return PickledGlobal{TorchRole::kConstant, type->name, type};
  }
  if (module == "torch.storage" && name == kUntyped.clazz)
    return PickledGlobal{TorchRole::kStorageType, kUntyped.clazz, &kUntyped};
  const auto* found = std::ranges::find_if(kTorchGlobals, [&](const TorchGlobal& global) {
    return global.module == module && global.name == name;
  });
  if (found == kTorchGlobals.end()) return std::nullopt;
  return PickledGlobal{found->role, found->name};
}

}  // namespace

void TorchObjects::ThrowMalformed(std::string_view what) const {
  throw Error(ErrorCode::kModelMalformed,
              fmt::format("{}: the pickle has {}; download it again", Printable(source_), what));
}

PickleValue TorchObjects::Global(std::string_view module, std::string_view name) {
  if (const std::optional<PickledGlobal> global = FindGlobal(module, name))
    return AddToHeap(Kind::kGlobal, heap_.globals, *global);
  throw Error(
      ErrorCode::kUnsafe,
      fmt::format(
          "{}: the pickle refers to {}.{}, which no weights need; nothing of it was run; use a "
          "safetensors version of the model",
          Printable(source_), Printable(module, 60), Printable(name, 60)));
}

const PickledGlobal& TorchObjects::GlobalOf(PickleValue value) const {
  return heap_.globals[static_cast<std::size_t>(value.number)];
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

// (storage, storage_offset, size, stride, ...)
PickledTensor TorchObjects::View(const Values& arguments) const {
  const bool usable = arguments.size() >= 4 && arguments[0].kind == Kind::kStorage &&
                      arguments[1].kind == Kind::kInteger;
  if (!usable) ThrowMalformed("a tensor with wrong arguments");
  const PickledStorage& storage = heap_.storages[static_cast<std::size_t>(arguments[0].number)];
  return {storage, *storage.type, arguments[1].number, Integers(arguments[2], "sizes"),
          Integers(arguments[3], "strides")};
}

PickleValue TorchObjects::AddTensor(PickledTensor tensor) {
  return AddToHeap(Kind::kTensor, heap_.tensors, std::move(tensor));
}

// (storage, storage_offset, size, stride, requires_grad, backward_hooks, dtype[, metadata])
PickleValue TorchObjects::TypedTensor(const Values& arguments) {
  const bool usable = arguments.size() >= 7 && arguments[6].kind == Kind::kGlobal &&
                      GlobalOf(arguments[6]).type != nullptr;
  if (!usable) ThrowMalformed("a tensor with wrong arguments");
  PickledTensor tensor = View(arguments);
  tensor.type = *GlobalOf(arguments[6]).type;
  return AddTensor(std::move(tensor));
}

// (function, class, arguments, state): the tensor alone.
PickleValue TorchObjects::TensorWithState(const Values& arguments) {
  const bool usable = arguments.size() == 4 && arguments[0].kind == Kind::kGlobal &&
                      MakesTensor(GlobalOf(arguments[0]).role) &&
                      arguments[1].kind == Kind::kGlobal &&
                      GlobalOf(arguments[1]).role == TorchRole::kConstant;
  if (!usable) ThrowMalformed("a tensor with state and wrong arguments");
  return Call(arguments[0], arguments[2]);
}

void TorchObjects::RefuseCall(PickleValue callable) const {
  throw Error(ErrorCode::kUnsafe,
              fmt::format("{}: the pickle calls {}; nothing of it was run; use a safetensors "
                          "version of the model",
                          Printable(source_),
                          callable.kind == Kind::kGlobal ? GlobalOf(callable).name
                                                         : "what is not a function"));
}

// Tensors that are quantised or sparse cannot be read.
PickleValue TorchObjects::MakeTensor(TorchRole role, const Values& arguments) {
  if (role == TorchRole::kTypedTensor) return TypedTensor(arguments);
  PickledTensor tensor;
  tensor.type.name = "sparse";
  if (role == TorchRole::kSparseTensor) return AddTensor(std::move(tensor));
  tensor = View(arguments);
  if (role == TorchRole::kQuantisedTensor) tensor.type.dtype.reset();
  return AddTensor(std::move(tensor));
}

PickleValue TorchObjects::Call(PickleValue callable, PickleValue arguments) {
  if (callable.kind != Kind::kGlobal) RefuseCall(callable);
  const TorchRole role = GlobalOf(callable).role;
  if (role == TorchRole::kStorageType || role == TorchRole::kConstant) RefuseCall(callable);
  const Values& list = Tuple(arguments, "arguments");
  if (MakesTensor(role)) return MakeTensor(role, list);
  switch (role) {
    case TorchRole::kTensorWithState:
      return TensorWithState(list);
    case TorchRole::kParameter:  // (tensor, requires_grad, backward_hooks[, state])
      if (list.size() < 3 || list[0].kind != Kind::kTensor)
        ThrowMalformed("a parameter with wrong arguments");
      return list[0];
    case TorchRole::kSize:
      if (list.size() != 1 || list[0].kind != Kind::kTuple)
        ThrowMalformed("a size with wrong arguments");
      return list[0];
    case TorchRole::kOrderedDict:
      // Python 2 gave it a list of pairs; torch never wrote a filled one.
      if (!list.empty()) ThrowMalformed("an OrderedDict with arguments");
      return AddToHeap(Kind::kDict, heap_.dicts, {});
    default:  // kPlainValue
      return {Kind::kOther};
  }
}

// Ids of before torch 1.6 have a sixth part: which storage this is a part of; None since 0.4.
PickleValue TorchObjects::Storage(PickleValue id) {
  const std::vector<PickleValue>& parts = Tuple(id, "storages");
  const bool whole = parts.size() == 5 || (parts.size() == 6 && parts[5].kind == Kind::kNone);
  const bool usable = whole && parts[0].kind == Kind::kString &&
                      heap_.strings[static_cast<std::size_t>(parts[0].number)] == "storage" &&
                      parts[1].kind == Kind::kGlobal &&
                      GlobalOf(parts[1]).role == TorchRole::kStorageType &&
                      parts[2].kind == Kind::kString && parts[3].kind == Kind::kString &&
                      parts[4].kind == Kind::kInteger && parts[4].number >= 0;
  if (!usable) ThrowMalformed("a storage that is not torch's");
  return AddToHeap(
      Kind::kStorage, heap_.storages,
      PickledStorage{GlobalOf(parts[1]).type,
                     heap_.strings[static_cast<std::size_t>(parts[2].number)], parts[4].number});
}

}  // namespace spillway
