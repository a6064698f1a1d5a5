#include "src/jinja/values/methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/jinja/values/fault.h"
#include "src/jinja/values/operators.h"
#include "src/jinja/values/print.h"

namespace spillway::jinja {
namespace {

template <std::size_t kSize>
bool IsIn(std::string_view name, const std::array<std::string_view, kSize>& names) {
  return std::ranges::find(names, name) != names.end();
}

bool IsList(const Value& value) {
  return value.AsSequence() && value.AsSequence()->kind == SequenceKind::kList;
}

bool IsTuple(const Value& value) {
  return value.AsSequence() && value.AsSequence()->kind == SequenceKind::kTuple;
}

Value MembersOf(const Dict& dict, std::string_view name, const Arguments& arguments) {
  const BoundArguments none(name, arguments, {});
  Values items;
  items.reserve(dict.members.size());
  for (const auto& [key, value] : dict.members) {
    items.push_back(name == "keys" ? key : name == "values" ? value : MakeTuple({key, value}));
  }
  const SequenceKind kind = name == "keys"     ? SequenceKind::kKeys
                            : name == "values" ? SequenceKind::kValues
                                               : SequenceKind::kItems;
  return MakeSequence(kind, std::move(items));
}

Value CallDictMethod(const Value& object, std::string_view name, const Arguments& arguments) {
  const Dict& dict = *object.AsDict();
  if (name == "copy") return object;
  if (name != "get") return MembersOf(dict, name, arguments);
  if (!arguments.named.empty()) throw Fault("get() takes no keyword arguments");
  const BoundArguments bound("get", arguments, {"key", "default"});
  const Value* found = dict.Find(bound.At(0));
  if (found != nullptr) return *found;
  return bound.Has(1) ? bound.At(1) : Value();
}

Value CallSequenceMethod(const Value& object, std::string_view name, const Arguments& arguments) {
  if (name == "copy") return object;
  const Values& items = object.AsSequence()->items;
  const BoundArguments bound(name, arguments, {"value"});
  const auto is_it = [&](const Value& item) { return Equal(item, bound.At(0)); };
  if (name == "count") return static_cast<std::size_t>(std::ranges::count_if(items, is_it));
  const auto found = std::ranges::find_if(items, is_it);
  if (found == items.end()) throw Fault(fmt::format("{} is not in list", Repr(bound.At(0))));
  return static_cast<std::size_t>(found - items.begin());
}

}  // namespace

bool HasMethod(const Value& object, std::string_view name) {
  static constexpr std::array<std::string_view, 5> kDict = {"get", "items", "keys", "values",
                                                            "copy"};
  static constexpr std::array<std::string_view, 3> kList = {"count", "index", "copy"};
  static constexpr std::array<std::string_view, 2> kTuple = {"count", "index"};
  if (object.Is<Text>()) return IsTextMethod(name);
  if (object.AsDict()) return IsIn(name, kDict);
  if (IsList(object)) return IsIn(name, kList);
  return IsTuple(object) && IsIn(name, kTuple);
}

bool IsUnsafeMethod(const Value& object, std::string_view name) {
  static constexpr std::array<std::string_view, 8> kList = {"append", "clear",  "extend",  "insert",
                                                            "pop",    "remove", "reverse", "sort"};
  static constexpr std::array<std::string_view, 5> kDict = {"clear", "pop", "popitem", "setdefault",
                                                            "update"};
  if (object.AsDict()) return IsIn(name, kDict);
  return IsList(object) && IsIn(name, kList);
}

bool IsUnsupportedMethod(std::string_view name) {
  static constexpr std::array<std::string_view, 18> kNames = {
      "encode",     "expandtabs", "format_map",       "fromkeys",   "isidentifier", "maketrans",
      "translate",  "bit_count",  "as_integer_ratio", "bit_length", "conjugate",    "from_bytes",
      "is_integer", "to_bytes",   "decode",           "hex",        "strftime",     "isoformat"};
  return IsIn(name, kNames);
}

Value CallMethod(const Value& object, std::string_view name, const Arguments& arguments) {
  if (const std::string* text = object.AsText()) return CallTextMethod(*text, name, arguments);
  if (object.AsDict()) return CallDictMethod(object, name, arguments);
  return CallSequenceMethod(object, name, arguments);
}

}  // namespace spillway::jinja
