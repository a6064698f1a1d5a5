// Runs a pickle that can do nothing but build a PickleHeap: data, never code. One use, one thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/checkpoint/pickle_value.h"
#include "src/checkpoint/torch_objects.h"

namespace spillway {

// Bound every resource: an opcode makes at most one object of some 100 bytes. A tensor takes about
// 50 opcodes and 250 bytes, so this is enough for 40,000 of them.
constexpr int64_t kMaxPickleBytes = 16 << 20;
constexpr int64_t kMaxPickleSteps = 1 << 21;

class PickleMachine {
 public:
  // `source` is what messages call the pickle. Lifetime: `pickle` and `heap` outlive the machine
  // and its value.
  PickleMachine(std::string_view pickle, PickleHeap& heap, std::string_view source)
      : rest_(pickle), size_(pickle.size()), heap_(heap), objects_(heap, source), source_(source) {}

  // The value that the pickle stands for. STOP must be its last byte.
  // Throws: Error kUnsafe (a global or a call that no weights need), kModelMalformed.
  PickleValue Run();

  // The value of a pickle that others may follow; `rest` becomes what does.
  // Throws: as Run.
  PickleValue RunFirst(std::string_view& rest);

 private:
  using Values = std::vector<PickleValue>;

  [[noreturn]] void ThrowMalformed(std::string_view what) const;
  [[noreturn]] void ThrowUnsafe(std::string_view what) const;

  PickleValue RunToStop();

  // Operands, taken off the front of the pickle.
  std::string_view Bytes(uint64_t count);
  uint64_t Unsigned(std::size_t width);
  PickleValue LongInteger(uint64_t count);
  std::string_view Line();

  // The stack. Marks are remembered apart, so that nothing else can be taken for one.
  void Push(PickleValue value);
  void PushOther(uint64_t num_bytes);  // of an operand that nothing uses
  void PushString(std::string_view text);
  PickleValue Pop();
  Values PopMany(std::size_t count);
  Values PopToMark();
  PickleValue& Top();

  // Each carries out one opcode; false when it is none of the group's.
  bool Step(uint8_t opcode);
  bool StepFrame(uint8_t opcode);
  bool StepNumber(uint8_t opcode);
  bool StepText(uint8_t opcode);
  bool StepStack(uint8_t opcode);
  bool StepTuple(uint8_t opcode);
  bool StepCollection(uint8_t opcode);
  bool StepMemo(uint8_t opcode);
  bool StepObject(uint8_t opcode);
  bool StepUnsafe(uint8_t opcode);  // throws for those of the group

  void Memoize(uint64_t index);
  void Recall(uint64_t index);
  void Append(const Values& values);
  void SetItems(const Values& values);
  void Build();

  std::string_view rest_;
  std::size_t size_;
  PickleHeap& heap_;
  TorchObjects objects_;
  std::string_view source_;
  Values stack_;
  std::vector<std::size_t> marks_;
  Values memo_;
  std::vector<bool> memo_filled_;
};

}  // namespace spillway
