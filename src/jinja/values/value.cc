#include "src/jinja/values/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "src/jinja/values/fault.h"
#include "src/jinja/values/text_builder.h"

namespace spillway::jinja {
namespace {

// Text with the bytes that it holds of the budget.
struct HeldText {
  Held held;
  std::string text;
};

std::shared_ptr<const std::string> Kept(std::string text) {
  auto kept = MakeShared<HeldText>();
  kept->held.Add(text.capacity());
  kept->text = std::move(text);
  return {kept, &kept->text};
}

std::shared_ptr<const std::string> Kept(std::string_view text) {
  auto kept = MakeShared<HeldText>();
  kept->held.Add(text.size());
  kept->text = text;
  return {kept, &kept->text};
}

std::string IntegerKey(Integer value) { return fmt::format("i{}", value); }
std::string TextKey(std::string_view text) {
  Spend(1 + text.size() / 32);
  CheckRoom(static_cast<double>(text.size()));
  return std::string("s").append(text);
}

// A whole float has the hash of its integer.
std::string NumberKey(double value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (value == std::floor(value) && std::abs(value) <= kExact)
    return IntegerKey(static_cast<Integer>(value));
  return fmt::format("f{}", value);
}

}  // namespace

Value::Value(std::string text) : data_(Text{Kept(std::move(text))}) {}
Value::Value(std::string_view text) : data_(Text{Kept(text)}) {}

const std::string* Value::AsText() const {
  const auto* text = As<Text>();
  return text == nullptr ? nullptr : text->bytes.get();
}

const Sequence* Value::AsSequence() const {
  const auto* sequence = As<SequencePtr>();
  return sequence == nullptr ? nullptr : sequence->get();
}

const Dict* Value::AsDict() const {
  const auto* dict = As<DictPtr>();
  return dict == nullptr ? nullptr : dict->get();
}

std::optional<Integer> Value::AsInteger() const {
  if (const auto* integer = As<Integer>()) return *integer;
  if (const auto* flag = As<bool>()) return Integer{*flag ? 1 : 0};
  return std::nullopt;
}

std::optional<double> Value::AsNumber() const {
  if (const auto* real = As<double>()) return *real;
  if (const auto integer = AsInteger()) return static_cast<double>(*integer);
  return std::nullopt;
}

bool Value::IsTrue() const {
  if (Is<None>() || Is<Undefined>()) return false;
  if (const auto number = AsNumber()) return *number != 0.0;
  if (const std::string* text = AsText()) return !text->empty();
  if (const Sequence* sequence = AsSequence())
    return sequence->kind == SequenceKind::kGenerator || !sequence->items.empty();
  if (const Dict* dict = AsDict()) return !dict->members.empty();
  return true;
}

std::size_t Value::depth() const {
  if (const Sequence* sequence = AsSequence()) return sequence->depth;
  if (const Dict* dict = AsDict()) return dict->depth;
  if (const auto* loop = As<LoopPtr>()) return (*loop)->value_depth;
  if (const auto* callable = As<CallablePtr>()) return (*callable)->receiver.depth() + 1;
  return 0;
}

void Dict::Set(const Value& key, Value value) {
  const std::size_t inner = std::max(key.depth(), value.depth());
  if (inner >= kMaxDepth)
    throw Fault(fmt::format("a value nests deeper than {} levels", kMaxDepth));
  depth = std::max(depth, inner + 1);
  std::string name = KeyText(key);
  const std::size_t name_bytes = name.capacity();
  const auto [place, is_new] = places.try_emplace(std::move(name), members.size());
  if (is_new) {
    key_bytes.Add(name_bytes);
    members.emplace_back(key, std::move(value));
  } else {
    members[place->second].second = std::move(value);
  }
}

const Value* Dict::Find(const Value& key) const {
  const auto place = places.find(KeyText(key));
  return place == places.end() ? nullptr : &members[place->second].second;
}

const Value* Dict::Find(std::string_view key) const {
  const auto place = places.find(TextKey(key));
  return place == places.end() ? nullptr : &members[place->second].second;
}

const Value* Namespace::Find(std::string_view name) const {
  Spend(1 + members.size() / 16);
  const auto found = std::ranges::find(members, name, &Named::first);
  return found == members.end() ? nullptr : &found->second;
}

void Namespace::Set(const std::string& name, Value value) {
  Spend(1 + members.size() / 16);
  const auto found = std::ranges::find(members, name, &Named::first);
  if (found != members.end()) {
    found->second = std::move(value);
    return;
  }
  constexpr std::size_t kMaxMembers = 1000;
  if (members.size() == kMaxMembers)
    throw Fault(fmt::format("a namespace has more than {} members", kMaxMembers));
  name_bytes.Add(name.size());
  members.emplace_back(name, std::move(value));
}

Value MakeUndefined(std::string why) { return Undefined{Kept(std::move(why))}; }

std::size_t DepthOf(const Values& items) {
  Spend(1 + items.size() / 16);
  std::size_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  if (depth >= kMaxDepth)
    throw Fault(fmt::format("a value nests deeper than {} levels", kMaxDepth));
  return depth + 1;
}

Value MakeSequence(SequenceKind kind, Values items) {
  auto sequence = MakeShared<Sequence>();
  sequence->kind = kind;
  sequence->depth = DepthOf(items);
  sequence->items = std::move(items);
  return sequence;
}

Value MakeTuple(Values items) { return MakeSequence(SequenceKind::kTuple, std::move(items)); }

Value MakeMarkup(std::string_view text) { return Text{Kept(text), true}; }

Value MakeMethod(Value receiver, std::string name) {
  if (receiver.depth() >= kMaxDepth)
    throw Fault(fmt::format("a value nests deeper than {} levels", kMaxDepth));
  auto method = MakeShared<Callable>();
  method->kind = CallableKind::kMethod;
  method->name = std::move(name);
  method->receiver = std::move(receiver);
  return CallablePtr(std::move(method));
}

std::string TypeName(const Value& value) {
  if (value.Is<None>()) return "NoneType";
  if (value.Is<Undefined>()) return "Undefined";
  if (value.Is<bool>()) return "bool";
  if (value.Is<Integer>()) return "int";
  if (value.Is<double>()) return "float";
  if (value.Is<Text>()) return "str";
  if (value.Is<DictPtr>()) return "dict";
  if (value.Is<NamespacePtr>()) return "Namespace";
  if (value.Is<LoopPtr>()) return "LoopContext";
  if (value.Is<CallablePtr>()) return "function";
  static constexpr std::array kNames = {"list",        "tuple",      "range",    "dict_keys",
                                        "dict_values", "dict_items", "generator"};
  return kNames[static_cast<std::size_t>(value.AsSequence()->kind)];
}

std::string ObjectName(const Value& value) {
  return value.Is<None>() ? "None" : TypeName(value) + " object";
}

std::string KeyText(const Value& key) {
  if (key.Is<None>()) return "n";
  if (const std::string* text = key.AsText()) return TextKey(*text);
  if (const auto integer = key.AsInteger()) return IntegerKey(*integer);
  if (const auto number = key.AsNumber()) return NumberKey(*number);
  const Sequence* tuple = key.AsSequence();
  if (tuple == nullptr || tuple->kind != SequenceKind::kTuple)
    throw Fault(fmt::format("a {} cannot be a key of a dict", TypeName(key)));
  TextBuilder out;
  out.Add('t');
  for (const Value& item : tuple->items) {
    const std::string inner = KeyText(item);
    out.Add(fmt::format("{} ", inner.size()));
    out.Add(inner);
  }
  return out.Take();
}

}  // namespace spillway::jinja
