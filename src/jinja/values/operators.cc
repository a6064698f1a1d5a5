#include "src/jinja/values/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/jinja/values/fault.h"
#include "src/jinja/values/format_text.h"
#include "src/jinja/values/print.h"
#include "src/jinja/values/python_text.h"
#include "src/jinja/values/text_builder.h"

namespace spillway::jinja {
namespace {

[[noreturn]] void FailTypes(std::string_view name, const Value& left, const Value& right) {
  throw Fault(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", name, TypeName(left),
                          TypeName(right)));
}

[[noreturn]] void FailOverflow() { throw Fault("an integer has more than 127 bits"); }

Value Sum(Integer left, Integer right) {
  Integer out = 0;
  if (__builtin_add_overflow(left, right, &out)) FailOverflow();
  return out;
}

Value Difference(Integer left, Integer right) {
  Integer out = 0;
  if (__builtin_sub_overflow(left, right, &out)) FailOverflow();
  return out;
}

Integer Product(Integer left, Integer right) {
  Integer out = 0;
  if (__builtin_mul_overflow(left, right, &out)) FailOverflow();
  return out;
}

[[noreturn]] void FailZero() { throw Fault("division by zero"); }

// Rounds down, and the remainder has the divisor's sign.
Integer FloorDivided(Integer left, Integer right) {
  if (right == 0) FailZero();
  const Integer quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

Value Power(Integer base, Integer exponent) {
  if (exponent < 0) return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  if (base == 0 || base == 1) return exponent == 0 ? Integer{1} : base;
  if (base == -1) return Integer{exponent % 2 == 0 ? 1 : -1};
  if (exponent > 127) FailOverflow();
  Integer out = 1;
  for (Integer i = 0; i < exponent; ++i) out = Product(out, base);
  return out;
}

Value OfIntegers(std::string_view name, Integer left, Integer right) {
  if (name == "+") return Sum(left, right);
  if (name == "-") return Difference(left, right);
  if (name == "*") return Product(left, right);
  if (name == "**") return Power(left, right);
  if (name == "//") return FloorDivided(left, right);
  if (name == "%") return left - right * FloorDivided(left, right);
  if (right == 0) FailZero();
  return static_cast<double>(left) / static_cast<double>(right);
}

Value OfReals(std::string_view name, double left, double right) {
  if (name == "+") return left + right;
  if (name == "-") return left - right;
  if (name == "*") return left * right;
  if (name == "**") return std::pow(left, right);
  if (right == 0.0) FailZero();
  if (name == "/") return left / right;
  if (name == "//") return std::floor(left / right);
  const double rest = std::fmod(left, right);
  return rest != 0.0 && (rest < 0.0) != (right < 0.0) ? rest + right : rest;
}

Value Joined(const Text& left, const Text& right) {
  TextBuilder out;
  const bool escapes = left.is_markup || right.is_markup;
  for (const Text* text : {&left, &right}) {
    if (escapes && !text->is_markup) {
      out.Add(EscapeMarkup(*text->bytes));
    } else {
      out.Add(*text->bytes);
    }
  }
  return escapes ? MakeMarkup(out.Take()) : Value(out.Take());
}

bool IsListOrTuple(const Sequence* sequence) {
  return sequence != nullptr &&
         (sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple);
}

Value Repeated(const Value& value, Integer count) {
  constexpr Integer kMany = Integer{1} << 40;
  const auto times = static_cast<long>(std::clamp<Integer>(count, 0, kMany));
  if (const auto* text = value.As<Text>()) {
    std::string out = Repeat(*text->bytes, times);
    return text->is_markup ? MakeMarkup(std::move(out)) : Value(std::move(out));
  }
  const Sequence* sequence = value.AsSequence();
  CheckRoom(static_cast<double>(sequence->items.size()) * static_cast<double>(times) *
            sizeof(Value));
  Values items;
  items.reserve(sequence->items.size() * static_cast<std::size_t>(times));
  for (long i = 0; i < times && !sequence->items.empty(); ++i)
    items.insert(items.end(), sequence->items.begin(), sequence->items.end());
  return MakeSequence(sequence->kind, std::move(items));
}

bool IsRepeatable(const Value& value) {
  return value.Is<Text>() || IsListOrTuple(value.AsSequence());
}

Value Appended(const Sequence& left, const Sequence& right) {
  Values items;
  items.reserve(left.items.size() + right.items.size());
  items.insert(items.end(), left.items.begin(), left.items.end());
  items.insert(items.end(), right.items.begin(), right.items.end());
  return MakeSequence(left.kind, std::move(items));
}

bool EqualTexts(const std::string& left, const std::string& right) {
  if (left.size() == right.size()) SpendOnText(left.size());
  return left == right;
}

bool LessTexts(const std::string& left, const std::string& right) {
  SpendOnText(std::min(left.size(), right.size()));
  return left < right;
}

// Equality and order, over all levels: a list may hold one list many times.
class Comparison {
 public:
  bool Equal(const Value& left, const Value& right) {
    Spend(1);
    const auto a = left.AsNumber();
    const auto b = right.AsNumber();
    if (a || b) return a && b && EqualNumbers(left, right);
    if (const std::string* text = left.AsText())
      return right.AsText() && EqualTexts(*text, *right.AsText());
    if (left.Is<None>() || right.Is<None>()) return left.Is<None>() && right.Is<None>();
    if (left.Is<Undefined>() || right.Is<Undefined>())
      return left.Is<Undefined>() && right.Is<Undefined>();
    if (left.AsSequence() && right.AsSequence())
      return EqualSequences(*left.AsSequence(), *right.AsSequence());
    if (left.AsDict() && right.AsDict()) return EqualDicts(*left.AsDict(), *right.AsDict());
    return IsSame(left, right);
  }

  bool Less(const Value& left, const Value& right) {
    Spend(1);
    if (left.AsInteger() && right.AsInteger()) return *left.AsInteger() < *right.AsInteger();
    if (left.AsNumber() && right.AsNumber()) return *left.AsNumber() < *right.AsNumber();
    if (left.AsText() && right.AsText()) return LessTexts(*left.AsText(), *right.AsText());
    const Sequence* a = left.AsSequence();
    const Sequence* b = right.AsSequence();
    if (IsListOrTuple(a) && IsListOrTuple(b) && a->kind == b->kind) return LessSequences(*a, *b);
    RefuseUndefined(left);
    RefuseUndefined(right);
    throw Fault(fmt::format("'<' not supported between instances of '{}' and '{}'", TypeName(left),
                            TypeName(right)));
  }

 private:
  static bool EqualNumbers(const Value& left, const Value& right) {
    const auto a = left.AsInteger();
    const auto b = right.AsInteger();
    return a && b ? *a == *b : *left.AsNumber() == *right.AsNumber();
  }

  static bool IsSame(const Value& left, const Value& right) {
    if (left.As<NamespacePtr>() && right.As<NamespacePtr>())
      return *left.As<NamespacePtr>() == *right.As<NamespacePtr>();
    if (left.As<LoopPtr>() && right.As<LoopPtr>())
      return *left.As<LoopPtr>() == *right.As<LoopPtr>();
    return left.As<CallablePtr>() && right.As<CallablePtr>() &&
           *left.As<CallablePtr>() == *right.As<CallablePtr>();
  }

  bool EqualSequences(const Sequence& left, const Sequence& right) {
    if (&left == &right) return true;
    if (left.kind != right.kind || left.kind == SequenceKind::kGenerator ||
        left.items.size() != right.items.size())
      return false;
    for (std::size_t i = 0; i < left.items.size(); ++i) {
      if (!Equal(left.items[i], right.items[i])) return false;
    }
    return true;
  }

  bool EqualDicts(const Dict& left, const Dict& right) {
    if (left.members.size() != right.members.size()) return false;
    for (const auto& [key, value] : left.members) {
      const Value* other = right.Find(key);
      if (other == nullptr || !Equal(value, *other)) return false;
    }
    return true;
  }

  bool LessSequences(const Sequence& left, const Sequence& right) {
    const std::size_t common = std::min(left.items.size(), right.items.size());
    for (std::size_t i = 0; i < common; ++i) {
      if (!Equal(left.items[i], right.items[i])) return Less(left.items[i], right.items[i]);
    }
    return left.items.size() < right.items.size();
  }
};

}  // namespace

void RefuseUndefined(const Value& value) {
  if (const auto* undefined = value.As<Undefined>()) throw Fault(*undefined->why);
}

Value BinaryOperation(std::string_view name, const Value& left, const Value& right) {
  const auto a = left.AsInteger();
  const auto b = right.AsInteger();
  if (a && b) return OfIntegers(name, *a, *b);
  if (left.AsNumber() && right.AsNumber())
    return OfReals(name, *left.AsNumber(), *right.AsNumber());
  RefuseUndefined(left);
  if (name == "%" && left.Is<Text>()) return FormatPercent(left, right);
  RefuseUndefined(right);
  if (name == "*" && IsRepeatable(left) && b) return Repeated(left, *b);
  if (name == "*" && IsRepeatable(right) && a) return Repeated(right, *a);
  if (name == "+") {
    if (left.Is<Text>() && right.Is<Text>()) return Joined(*left.As<Text>(), *right.As<Text>());
    const Sequence* first = left.AsSequence();
    const Sequence* second = right.AsSequence();
    if (IsListOrTuple(first) && IsListOrTuple(second) && first->kind == second->kind)
      return Appended(*first, *second);
    if (left.Is<Text>())
      throw Fault(fmt::format("can only concatenate str (not \"{}\") to str", TypeName(right)));
  }
  FailTypes(name, left, right);
}

Value Negated(const Value& value) {
  if (const auto integer = value.AsInteger()) return Difference(0, *integer);
  if (const auto* real = value.As<double>()) return -*real;
  RefuseUndefined(value);
  throw Fault(fmt::format("bad operand type for unary -: '{}'", TypeName(value)));
}

bool Equal(const Value& left, const Value& right) { return Comparison().Equal(left, right); }
bool Less(const Value& left, const Value& right) { return Comparison().Less(left, right); }

bool Contains(const Value& container, const Value& item) {
  if (const std::string* text = container.AsText()) {
    RefuseUndefined(item);
    const std::string* part = item.AsText();
    if (part == nullptr)
      throw Fault(
          fmt::format("'in <string>' requires string as left operand, not {}", TypeName(item)));
    return FindFirst(*text, *part) != std::string::npos;
  }
  if (const Dict* dict = container.AsDict()) return dict->Find(item) != nullptr;
  if (container.AsSequence() == nullptr && !container.Is<Undefined>())
    throw Fault(fmt::format("argument of type '{}' is not iterable", TypeName(container)));
  const Values items = ItemsOf(container);
  Comparison comparison;
  return std::ranges::any_of(items,
                             [&](const Value& other) { return comparison.Equal(other, item); });
}

bool Compare(std::string_view name, const Value& left, const Value& right) {
  if (name == "==") return Equal(left, right);
  if (name == "!=") return !Equal(left, right);
  if (name == "in") return Contains(right, left);
  if (name == "not in") return !Contains(right, left);
  const auto a = left.AsNumber();
  const auto b = right.AsNumber();
  const bool unordered = (a && std::isnan(*a)) || (b && std::isnan(*b));
  if (name == "<") return Less(left, right);
  if (name == ">") return Less(right, left);
  if (name == "<=") return !Less(right, left) && !unordered;
  return !Less(left, right) && !unordered;
}

Values ItemsOf(const Value& value) {
  if (value.Is<Undefined>()) return {};
  if (const std::string* text = value.AsText()) {
    const Parts points = CodePointTexts(*text);
    return {points.begin(), points.end()};
  }
  if (const auto* sequence = value.As<SequencePtr>()) {
    if ((*sequence)->kind != SequenceKind::kGenerator) return (*sequence)->items;
    if ((*sequence)->is_spent) return {};
    (*sequence)->is_spent = true;
    return (*sequence)->items;
  }
  if (const Dict* dict = value.AsDict()) {
    Values keys;
    keys.reserve(dict->members.size());
    for (const auto& [key, member] : dict->members) keys.push_back(key);
    return keys;
  }
  throw Fault(fmt::format("'{}' object is not iterable", TypeName(value)));
}

std::size_t LengthOf(const Value& value) {
  if (value.Is<Undefined>()) return 0;
  if (const std::string* text = value.AsText()) return NumCodePoints(*text);
  if (const Dict* dict = value.AsDict()) return dict->members.size();
  const Sequence* sequence = value.AsSequence();
  if (sequence == nullptr || sequence->kind == SequenceKind::kGenerator)
    throw Fault(fmt::format("object of type '{}' has no len()", TypeName(value)));
  return sequence->items.size();
}

}  // namespace spillway::jinja
