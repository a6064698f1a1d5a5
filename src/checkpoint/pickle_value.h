// Values that a restricted pickle can build: plain ones and a few kinds of torch objects, none of
// which does anything. Thread rule: values; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "src/checkpoint/torch_types.h"

namespace spillway {

// 16 bytes; what does not fit is in the PickleHeap, `number` is its index there. Copies share it,
// as in Python.
struct PickleValue {
  enum class Kind : uint8_t {
    kNone,
    kBoolean,
    kInteger,
    kOther,    // floating point numbers, byte strings, sets: legal, of no use to us
    kString,   // -> strings
    kTuple,    // -> sequences
    kList,     // -> sequences
    kDict,     // -> dicts
    kGlobal,   // -> globals
    kStorage,  // -> storages
    kTensor,   // -> tensors
  };
  Kind kind = Kind::kNone;
  int64_t number = 0;
};

// What a name may be used for.
enum class TorchRole : uint8_t {
  kOrderedDict,
  kTensor,
  kTypedTensor,
  kQuantisedTensor,
  kSparseTensor,
  kParameter,
  kTensorWithState,
  kSize,
  kPlainValue,   // a call makes a value of no use to us
  kConstant,     // of no use but as an argument
  kStorageType,  // only within the ids of storages
};

constexpr bool MakesTensor(TorchRole role) {
  return role == TorchRole::kTensor || role == TorchRole::kTypedTensor ||
         role == TorchRole::kQuantisedTensor || role == TorchRole::kSparseTensor;
}

struct PickledGlobal {
  TorchRole role = TorchRole::kConstant;
  std::string_view name;
  const TorchType* type = nullptr;  // of a storage class, or named as a dtype
};

struct PickledStorage {
  const TorchType* type = &kUntyped;
  std::string_view key;  // in a zip archive the entry data/<key>
  int64_t num_elements = 0;
};

struct PickledTensor {
  PickledStorage storage;
  TorchType type;      // without a dtype: cannot be read
  int64_t offset = 0;  // in elements
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // in elements
};

// Owns what the values refer to. Strings are views of the pickle itself.
struct PickleHeap {
  std::vector<std::string_view> strings;
  std::vector<std::vector<PickleValue>> sequences;
  std::vector<std::vector<std::pair<PickleValue, PickleValue>>> dicts;
  std::vector<PickledGlobal> globals;
  std::vector<PickledStorage> storages;
  std::vector<PickledTensor> tensors;
};

// Moves `object` into `list` of the heap.
template <typename T>
PickleValue AddToHeap(PickleValue::Kind kind, std::vector<T>& list, T object) {
  list.push_back(std::move(object));
  return {kind, static_cast<int64_t>(list.size()) - 1};
}

}  // namespace spillway
