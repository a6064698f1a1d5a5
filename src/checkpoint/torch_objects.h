// The few Python names that a saved state dict may refer to, and what "calling" them builds.
// Nothing is ever called: a name is an entry of a table, and a call makes a PickledTensor or an
// empty dict. Thread rule: one thread.
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
  PickleValue Global(std::string_view module, std::string_view name) const;

  // The value of the call `callable(*arguments)`.
  // Throws: Error kUnsafe when `callable` is not a rebuilder, kModelMalformed when the arguments
  // are not its own.
  PickleValue Call(PickleValue callable, PickleValue arguments);

  // The storage that a persistent id names: ("storage", type, key, device, number of elements).
  // Throws: Error kModelMalformed.
  PickleValue Storage(PickleValue id);

 private:
  [[noreturn]] void ThrowMalformed(std::string_view what) const;
  const std::vector<PickleValue>& Tuple(PickleValue value, std::string_view what) const;
  std::vector<int64_t> Integers(PickleValue value, std::string_view what) const;
  PickleValue RebuildTensor(const std::vector<PickleValue>& arguments);

  PickleHeap& heap_;
  std::string_view source_;
};

}  // namespace spillway
