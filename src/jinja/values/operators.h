// Operators of Python on values. Plain functions; any thread. All throw Fault, in Python's words,
// where Python raises an error.
#pragma once

#include <optional>
#include <string_view>

#include "src/jinja/values/value.h"

namespace spillway::jinja {

// `name`: + - * / // % **
Value BinaryOperation(std::string_view name, const Value& left, const Value& right);
Value Negated(const Value& value);

bool Equal(const Value& left, const Value& right);
// left < right. Throws: where the types have no order.
bool Less(const Value& left, const Value& right);
// `name`: == != < <= > >= in, not in
bool Compare(std::string_view name, const Value& left, const Value& right);
bool Contains(const Value& container, const Value& item);

// container[key], as jinja2 looks it up: an item, then an attribute; undefined where there is
// neither.
Value ItemOf(const Value& container, const Value& key);
// object.name: an attribute, then an item.
Value AttributeOf(const Value& object, const std::string& name);

struct SliceBounds {
  std::optional<Integer> start;
  std::optional<Integer> stop;
  std::optional<Integer> step;
};

// Sequences and texts. Throws: for what has no slices.
Value SliceOf(const Value& container, const SliceBounds& bounds);
// Requires: no step. Lifetime: the text's.
std::string_view SliceOfText(std::string_view text, const SliceBounds& bounds);

// Items that iterating over a value gives; a generator is spent by it.
// Throws: for what cannot be iterated over.
Values ItemsOf(const Value& value);
// len().
std::size_t LengthOf(const Value& value);

// Throws: where the value is undefined.
void RefuseUndefined(const Value& value);

}  // namespace spillway::jinja
