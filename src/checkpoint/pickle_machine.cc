#include "src/checkpoint/pickle_machine.h"

#include <fmt/format.h>

#include "spillway/error.h"
#include "src/checkpoint/little_endian.h"

namespace spillway {
namespace {

using Kind = PickleValue::Kind;

// Python's Lib/pickletools.py documents them. Those that are not here are refused.
enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kPopOne = '0',
  kPopMark = '1',
  kFloat = 'G',
  kInt4 = 'J',
  kInt1 = 'K',
  kInt2 = 'M',
  kNone = 'N',
  kPersistentId = 'Q',
  kReduce = 'R',
  kByteString4 = 'B',
  kByteString1 = 'C',
  kText2Long = 'T',  // Python 2's str
  kText2Short = 'U',
  kText4 = 'X',
  kListAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kListAppends = 'e',
  kGet1 = 'h',
  kInstance = 'i',
  kGet4 = 'j',
  kObject = 'o',
  kPut1 = 'q',
  kPut4 = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyTuple = ')',
  kEmptyList = ']',
  kEmptyDict = '}',
  kProtocol = 0x80,
  kNewObject = 0x81,
  kExtension1 = 0x82,
  kExtension2 = 0x83,
  kExtension4 = 0x84,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kTrue = 0x88,
  kFalse = 0x89,
  kLong1 = 0x8A,
  kLong4 = 0x8B,
  kText1 = 0x8C,
  kText8 = 0x8D,
  kByteString8 = 0x8E,
  kEmptySet = 0x8F,
  kSetAdds = 0x90,
  kNewObjectEx = 0x92,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

constexpr uint64_t kMaxMemo = 1 << 22;  // 64 MiB; torch uses about 15 entries a tensor
constexpr std::size_t kMaxMarks = 1000;
constexpr std::size_t kMaxTextBytes = 1 << 16;

}  // namespace

void PickleMachine::ThrowMalformed(std::string_view what) const {
  throw Error(ErrorCode::kModelMalformed,
              fmt::format("{}: {} at byte {} of its pickle; download it again", Printable(source_),
                          what, size_ - rest_.size()));
}

void PickleMachine::ThrowUnsafe(std::string_view what) const {
  throw Error(ErrorCode::kUnsafe,
              fmt::format("{}: its pickle {}, which no weights need; nothing of it was run; use a "
                          "safetensors version of the model",
                          Printable(source_), what));
}

std::string_view PickleMachine::Bytes(uint64_t count) {
  if (count > rest_.size()) ThrowMalformed("an operand reaches beyond the end");
  const std::string_view bytes = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return bytes;
}

uint64_t PickleMachine::Unsigned(std::size_t width) {
  const std::string_view bytes = Bytes(width);
  uint64_t value = 0;
  for (std::size_t at = 0; at < width; ++at)
    value |= uint64_t{static_cast<uint8_t>(bytes[at])} << (8 * at);
  return value;
}

// Two's complement of any width; no size or offset needs more than 64 bits, so that a wider one is
// of no use.
PickleValue PickleMachine::LongInteger(uint64_t count) {
  if (count > 8) {
    Bytes(count);
    return {Kind::kOther};
  }
  if (count == 0) return {Kind::kInteger, 0};
  const uint64_t value = Unsigned(count);
  const auto unused = static_cast<unsigned>(64 - 8 * count);
  return {Kind::kInteger, static_cast<int64_t>(value << unused) >> unused};
}

std::string_view PickleMachine::Line() {
  const std::size_t end = rest_.find('\n');
  if (end == std::string_view::npos) ThrowMalformed("a line without an end");
  return Bytes(end + 1).substr(0, end);
}

void PickleMachine::Push(PickleValue value) { stack_.push_back(value); }

void PickleMachine::PushOther(uint64_t num_bytes) {
  Bytes(num_bytes);
  Push({Kind::kOther});
}

void PickleMachine::PushString(std::string_view text) {
  if (text.size() > kMaxTextBytes) ThrowMalformed("a text of more than 64 KiB");
  Push(AddToHeap(Kind::kString, heap_.strings, text));
}

PickleValue& PickleMachine::Top() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) ThrowMalformed("the stack is empty");
  return stack_.back();
}

PickleValue PickleMachine::Pop() {
  const PickleValue value = Top();
  stack_.pop_back();
  return value;
}

PickleMachine::Values PickleMachine::PopMany(std::size_t count) {
  Values values(count);
  for (std::size_t at = count; at > 0; --at) values[at - 1] = Pop();
  return values;
}

PickleMachine::Values PickleMachine::PopToMark() {
  if (marks_.empty()) ThrowMalformed("a mark is missing");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  Values values(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return values;
}

PickleValue PickleMachine::Run() {
  const PickleValue value = RunToStop();
  if (!rest_.empty()) ThrowMalformed("data after the end");
  return value;
}

PickleValue PickleMachine::RunFirst(std::string_view& rest) {
  const PickleValue value = RunToStop();
  rest = rest_;
  return value;
}

PickleValue PickleMachine::RunToStop() {
  for (int64_t step = 0;; ++step) {
    const auto opcode = static_cast<uint8_t>(Unsigned(1));
    if (opcode == kStop) break;
    if (step == kMaxPickleSteps) ThrowMalformed("more steps than any model needs");
    if (!Step(opcode)) ThrowMalformed(fmt::format("the unknown opcode {:#04x}", opcode));
  }
  const PickleValue value = Pop();
  if (!stack_.empty() || !marks_.empty()) ThrowMalformed("values are left over");
  return value;
}

bool PickleMachine::Step(uint8_t opcode) {
  return StepFrame(opcode) || StepNumber(opcode) || StepText(opcode) || StepStack(opcode) ||
         StepTuple(opcode) || StepCollection(opcode) || StepMemo(opcode) || StepObject(opcode) ||
         StepUnsafe(opcode);
}

bool PickleMachine::StepFrame(uint8_t opcode) {
  switch (opcode) {
    case kProtocol:
      if (Unsigned(1) > 5) ThrowMalformed("an unknown protocol");
      return true;
    case kFrame:
      if (Unsigned(8) > rest_.size()) ThrowMalformed("a frame reaches beyond the end");
      return true;
    default:
      return false;
  }
}

bool PickleMachine::StepNumber(uint8_t opcode) {
  switch (opcode) {
    case kNone:
      Push({});
      return true;
    case kTrue:
      Push({Kind::kBoolean, 1});
      return true;
    case kFalse:
      Push({Kind::kBoolean, 0});
      return true;
    case kInt1:
      Push({Kind::kInteger, static_cast<int64_t>(Unsigned(1))});
      return true;
    case kInt2:
      Push({Kind::kInteger, static_cast<int64_t>(Unsigned(2))});
      return true;
    case kInt4:
      Push(LongInteger(4));
      return true;
    case kLong1:
      Push(LongInteger(Unsigned(1)));
      return true;
    case kLong4:
      Push(LongInteger(Unsigned(4)));
      return true;
    default:
      return false;
  }
}

bool PickleMachine::StepText(uint8_t opcode) {
  switch (opcode) {
    case kFloat:
      PushOther(8);
      return true;
    case kByteString1:
      PushOther(Unsigned(1));
      return true;
    case kByteString4:
      PushOther(Unsigned(4));
      return true;
    case kByteString8:
      PushOther(Unsigned(8));
      return true;
    case kText1:
    case kText2Short:
      PushString(Bytes(Unsigned(1)));
      return true;
    case kText4:
    case kText2Long:
      PushString(Bytes(Unsigned(4)));
      return true;
    case kText8:
      PushString(Bytes(Unsigned(8)));
      return true;
    default:
      return false;
  }
}

bool PickleMachine::StepStack(uint8_t opcode) {
  switch (opcode) {
    case kMark:
      if (marks_.size() == kMaxMarks) ThrowMalformed("nesting deeper than 1000");
      marks_.push_back(stack_.size());
      return true;
    case kPopOne:
      Pop();
      return true;
    case kPopMark:
      PopToMark();
      return true;
    default:
      return false;
  }
}

bool PickleMachine::StepTuple(uint8_t opcode) {
  const auto push = [&](Values values) {
    Push(AddToHeap(Kind::kTuple, heap_.sequences, std::move(values)));
    return true;
  };
  switch (opcode) {
    case kEmptyTuple:
      return push({});
    case kTuple1:
      return push(PopMany(1));
    case kTuple2:
      return push(PopMany(2));
    case kTuple3:
      return push(PopMany(3));
    case kTuple:
      return push(PopToMark());
    default:
      return false;
  }
}

bool PickleMachine::StepCollection(uint8_t opcode) {
  switch (opcode) {
    case kEmptyList:
    case kEmptySet:  // is filled as a list is
      Push(AddToHeap(Kind::kList, heap_.sequences, {}));
      return true;
    case kEmptyDict:
      Push(AddToHeap(Kind::kDict, heap_.dicts, {}));
      return true;
    case kListAppend:
      Append(PopMany(1));
      return true;
    case kListAppends:
    case kSetAdds:
      Append(PopToMark());
      return true;
    case kSetItem:
      SetItems(PopMany(2));
      return true;
    case kSetItems:
      SetItems(PopToMark());
      return true;
    default:
      return false;
  }
}

bool PickleMachine::StepMemo(uint8_t opcode) {
  switch (opcode) {
    case kPut1:
      Memoize(Unsigned(1));
      return true;
    case kPut4:
      Memoize(Unsigned(4));
      return true;
    case kMemoize:
      Memoize(memo_.size());
      return true;
    case kGet1:
      Recall(Unsigned(1));
      return true;
    case kGet4:
      Recall(Unsigned(4));
      return true;
    default:
      return false;
  }
}

bool PickleMachine::StepObject(uint8_t opcode) {
  switch (opcode) {
    case kGlobal: {
      const std::string_view module = Line();
      Push(objects_.Global(module, Line()));
      return true;
    }
    case kStackGlobal: {
      const Values names = PopMany(2);
      if (names[0].kind != Kind::kString || names[1].kind != Kind::kString)
        ThrowMalformed("a global without a name");
      Push(objects_.Global(heap_.strings[static_cast<std::size_t>(names[0].number)],
                           heap_.strings[static_cast<std::size_t>(names[1].number)]));
      return true;
    }
    case kReduce: {
      const Values call = PopMany(2);
      Push(objects_.Call(call[0], call[1]));
      return true;
    }
    case kPersistentId:
      Push(objects_.Storage(Pop()));
      return true;
    case kBuild:
      Build();
      return true;
    default:
      return false;
  }
}

bool PickleMachine::StepUnsafe(uint8_t opcode) {
  switch (opcode) {
    case kInstance: {
      const std::string_view module = Line();
      ThrowUnsafe(
          fmt::format("makes an instance of {}.{}", Printable(module, 60), Printable(Line(), 60)));
    }
    case kObject:
    case kNewObject:
    case kNewObjectEx:
      ThrowUnsafe("makes an instance of a class");
    case kExtension1:
    case kExtension2:
    case kExtension4:
      ThrowUnsafe("refers to a registered extension");
    default:
      return false;
  }
}

void PickleMachine::Memoize(uint64_t index) {
  if (index >= kMaxMemo) ThrowMalformed("more remembered values than any model needs");
  if (index >= memo_.size()) {
    memo_.resize(index + 1);
    memo_filled_.resize(index + 1, false);
  }
  memo_[index] = Top();
  memo_filled_[index] = true;
}

void PickleMachine::Recall(uint64_t index) {
  if (index >= memo_.size() || !memo_filled_[index])
    ThrowMalformed("a value that was never remembered");
  Push(memo_[index]);
}

void PickleMachine::Append(const Values& values) {
  const PickleValue list = Top();
  if (list.kind != Kind::kList) ThrowMalformed("an append to what is not a list");
  Values& elements = heap_.sequences[static_cast<std::size_t>(list.number)];
  elements.insert(elements.end(), values.begin(), values.end());
}

void PickleMachine::SetItems(const Values& values) {
  const PickleValue dict = Top();
  if (dict.kind != Kind::kDict || values.size() % 2 != 0)
    ThrowMalformed("an item set on what is not a dict");
  auto& items = heap_.dicts[static_cast<std::size_t>(dict.number)];
  for (std::size_t at = 0; at < values.size(); at += 2)
    items.emplace_back(values[at], values[at + 1]);
}

// A state dict carries its modules' versions as an attribute, which we do not need.
void PickleMachine::Build() {
  const PickleValue state = Pop();
  if (Top().kind != Kind::kDict || state.kind != Kind::kDict)
    ThrowUnsafe("sets the state of an object");
}

}  // namespace spillway
