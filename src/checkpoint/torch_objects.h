// The few Python names that a saved state dict may refer to, and what "calling" them builds.
// Nothing is ever called: a name is an entry of a table, and a call makes a PickledTensor, an empty
// dict or a value that says nothing. Thread rule: one thread.
#pragma once

#include <string_view>

#include "src/checkpoint/pickle_value.h"

namespace spillway {

class TorchObjects {
 public:
  // `source` is what messages call the file.
  TorchObjects(PickleHeap& heap, std::string_view source) : heap_(heap), source_(source) {}

  // The value of "module name" in the table.
  // Throws: Error kUnsafe, with the name, for every other.
  PickleValue Global(std::string_view module, std::string_view name);

  // The value of the call `callable(*arguments)`.
  // Throws: Error kUnsafe when `callable` is not a rebuilder, kModelMalformed when the arguments
  // are not its own.
  PickleValue Call(PickleValue callable, PickleValue arguments);

  // The storage that a persistent id names: ("storage", type, key, device, number of elements).
  // Throws: Error kModelMalformed.
  PickleValue Storage(PickleValue id);

 private:
  using Values = std::vector<PickleValue>;

  [[noreturn]] void ThrowMalformed(std::string_view what) const;
  [[noreturn]] void RefuseCall(PickleValue callable) const;
  const PickledGlobal& GlobalOf(PickleValue value) const;
  const Values& Tuple(PickleValue value, std::string_view what) const;
  std::vector<int64_t> Integers(PickleValue value, std::string_view what) const;
  PickledTensor View(const Values& arguments) const;
  PickleValue AddTensor(PickledTensor tensor);
  PickleValue MakeTensor(TorchRole role, const Values& arguments);
  PickleValue TypedTensor(const Values& arguments);
  PickleValue TensorWithState(const Values& arguments);

  PickleHeap& heap_;
  std::string_view source_;
};

}  // namespace spillway
