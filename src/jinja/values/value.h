// Value: what a chat template computes with: Python's types as far as templates see them. Lists and
// dicts never change once made, as in the sandbox that chat templates are written for.
// Thread rule: a value and its copies belong to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "src/jinja/values/budget.h"

namespace spillway::jinja {

__extension__ typedef __int128 Integer;  // room for 64 bits, signed or not, and their products

// Absence of a value: prints as nothing, has no items, and fails where it is used otherwise.
struct Undefined {
  std::shared_ptr<const std::string> why;  // "'x' is undefined"
};

struct None {};

// Text in UTF-8. `is_markup`: the `safe` and `escape` filters made it, and what is added to it with
// + is escaped.
struct Text {
  std::shared_ptr<const std::string> bytes;
  bool is_markup = false;
};

struct Sequence;
struct Dict;
struct Namespace;
struct Callable;
struct Loop;

using SequencePtr = std::shared_ptr<Sequence>;
using DictPtr = std::shared_ptr<const Dict>;
using NamespacePtr = std::shared_ptr<Namespace>;
using CallablePtr = std::shared_ptr<const Callable>;
using LoopPtr = std::shared_ptr<Loop>;

class Value;
using Values = std::vector<Value, CountingAllocator<Value>>;

class Value {
 public:
  Value() : data_(None{}) {}
  Value(bool value) : data_(value) {}  // NOLINT(google-explicit-constructor): as all below
  Value(int value) : data_(Integer{value}) {}
  Value(int64_t value) : data_(Integer{value}) {}
  Value(std::size_t value) : data_(static_cast<Integer>(value)) {}
  Value(Integer value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string text);
  Value(std::string_view text);
  Value(const char* text) : Value(std::string_view(text)) {}
  Value(Text text) : data_(std::move(text)) {}
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  Value(SequencePtr sequence) : data_(std::move(sequence)) {}
  Value(DictPtr dict) : data_(std::move(dict)) {}
  Value(NamespacePtr space) : data_(std::move(space)) {}
  Value(CallablePtr callable) : data_(std::move(callable)) {}
  Value(LoopPtr loop) : data_(std::move(loop)) {}

  // The value as one of the types above; null where it is another.
  template <typename T>
  const T* As() const {
    return std::get_if<T>(&data_);
  }
  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(data_);
  }

  // Text as such; null where it is none.
  const std::string* AsText() const;
  const Sequence* AsSequence() const;
  const Dict* AsDict() const;
  // Integer, or a bool as 0 or 1.
  std::optional<Integer> AsInteger() const;
  // Any number as a double.
  std::optional<double> AsNumber() const;

  bool IsTrue() const;  // Python's truth

  // Containers inside one another. Throws: Fault where this is over kMaxDepth.
  std::size_t depth() const;

 private:
  std::variant<None, Undefined, bool, Integer, double, Text, SequencePtr, DictPtr, NamespacePtr,
               CallablePtr, LoopPtr>
      data_;
};

enum class SequenceKind { kList, kTuple, kRange, kKeys, kValues, kItems, kGenerator };

struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  Values items;
  std::size_t depth = 1;
  bool is_spent = false;  // a generator that was gone through
};

using Member = std::pair<Value, Value>;

// Dict in the order of insertion. Keys: none, bools, numbers, texts and tuples of them.
struct Dict {
  std::vector<Member, CountingAllocator<Member>> members;
  std::unordered_map<std::string, std::size_t, std::hash<std::string>, std::equal_to<>,
                     CountingAllocator<std::pair<const std::string, std::size_t>>>
      places;  // KeyText of a key -> its member
  Held key_bytes;
  std::size_t depth = 1;

  // Throws: Fault for a key that has no hash in Python.
  void Set(const Value& key, Value value);
  const Value* Find(const Value& key) const;  // null: absent
  const Value* Find(std::string_view key) const;
};

// The only thing that changes: {% set ns.name = ... %}.
struct Namespace {
  using Named = std::pair<std::string, Value>;
  std::vector<Named, CountingAllocator<Named>> members;
  Held name_bytes;

  const Value* Find(std::string_view name) const;
  void Set(const std::string& name, Value value);
};

// State of `loop` inside {% for %}.
struct Loop {
  Values items;
  std::size_t index = 0;  // from 0
  std::size_t value_depth = 1;
  std::optional<Value> last_changed;  // what loop.changed() was told last, as text
};

struct Statement;
struct Scope;

enum class CallableKind { kFunction, kMethod, kMacro, kLoopMethod };

struct Callable {
  CallableKind kind = CallableKind::kFunction;
  std::string name;
  Value receiver;                     // of a method
  const Statement* macro = nullptr;   // its definition
  std::shared_ptr<Scope> scope = {};  // where that stands
};

inline constexpr std::size_t kMaxDepth = 100;  // of containers in one another

Value MakeUndefined(std::string why);
Value MakeSequence(SequenceKind kind, Values items);
inline Value MakeList(Values items) { return MakeSequence(SequenceKind::kList, std::move(items)); }
Value MakeTuple(Values items);
Value MakeMarkup(std::string_view text);
// Depth of a list of these. Throws: Fault where it is over kMaxDepth.
std::size_t DepthOf(const Values& items);
Value MakeMethod(Value receiver, std::string name);

// "str", "list": Python's name of the type.
std::string TypeName(const Value& value);
// "dict object": as jinja2's messages call a value.
std::string ObjectName(const Value& value);

// Text that two keys share where Python's hash and equality take them for one.
// Throws: Fault for a type that has no hash.
std::string KeyText(const Value& key);

}  // namespace spillway::jinja
