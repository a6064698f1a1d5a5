#include "src/jinja/tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/jinja/values/fault.h"
#include "src/jinja/values/operators.h"
#include "src/jinja/values/print.h"
#include "src/jinja/values/python_text.h"

namespace spillway::jinja {
namespace {

bool IsDefined(const Value& value) { return !value.Is<Undefined>(); }
bool IsUndefined(const Value& value) { return value.Is<Undefined>(); }
bool IsNone(const Value& value) { return value.Is<None>(); }
bool IsString(const Value& value) { return value.Is<Text>(); }
bool IsMapping(const Value& value) { return value.AsDict() != nullptr; }
bool IsNumber(const Value& value) { return value.AsNumber().has_value(); }
bool IsInteger(const Value& value) { return value.Is<Integer>(); }
bool IsFloat(const Value& value) { return value.Is<double>(); }
bool IsBoolean(const Value& value) { return value.Is<bool>(); }
bool IsTrueValue(const Value& value) { return value.As<bool>() && *value.As<bool>(); }
bool IsFalseValue(const Value& value) { return value.As<bool>() && !*value.As<bool>(); }
bool IsCallable(const Value& value) {
  return value.Is<CallablePtr>() || value.Is<Undefined>() || value.Is<LoopPtr>();
}
bool IsLowerText(const Value& value) { return IsLower(Str(value)); }
bool IsUpperText(const Value& value) { return IsUpper(Str(value)); }
bool IsEscaped(const Value& value) { return value.As<Text>() && value.As<Text>()->is_markup; }

bool IsIterable(const Value& value) {
  return value.Is<Text>() || value.Is<Undefined>() || value.AsSequence() || value.AsDict() ||
         value.Is<LoopPtr>();
}

// Python's object with a length and items.
bool IsSequence(const Value& value) {
  if (const Sequence* sequence = value.AsSequence())
    return sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple ||
           sequence->kind == SequenceKind::kRange;
  return value.Is<Text>() || value.Is<Undefined>() || value.AsDict();
}

bool HasRest(const Value& value, const Value& divisor, Integer rest) {
  return Equal(BinaryOperation("%", value, divisor), Value(rest));
}

bool IsOdd(const Value& value) { return HasRest(value, 2, 1); }
bool IsEven(const Value& value) { return HasRest(value, 2, 0); }

bool IsEqual(const Value& value, const Value& other) { return Equal(value, other); }
bool IsUnequal(const Value& value, const Value& other) { return !Equal(value, other); }
bool IsLess(const Value& value, const Value& other) { return Compare("<", value, other); }
bool IsAtMost(const Value& value, const Value& other) { return Compare("<=", value, other); }
bool IsGreater(const Value& value, const Value& other) { return Compare(">", value, other); }
bool IsAtLeast(const Value& value, const Value& other) { return Compare(">=", value, other); }
bool IsIn(const Value& value, const Value& other) { return Contains(other, value); }
bool IsDivisible(const Value& value, const Value& other) { return HasRest(value, other, 0); }

// One object: known of none, true, false and of what two names share.
bool IsSame(const Value& value, const Value& other) {
  return TypeName(value) == TypeName(other) && Equal(value, other);
}

struct Test {
  std::string_view name;
  bool (*alone)(const Value&);
  bool (*with)(const Value&, const Value&);
};

constexpr std::array kTests = {
    Test{"defined", IsDefined, nullptr},
    Test{"undefined", IsUndefined, nullptr},
    Test{"none", IsNone, nullptr},
    Test{"string", IsString, nullptr},
    Test{"mapping", IsMapping, nullptr},
    Test{"sequence", IsSequence, nullptr},
    Test{"iterable", IsIterable, nullptr},
    Test{"number", IsNumber, nullptr},
    Test{"integer", IsInteger, nullptr},
    Test{"float", IsFloat, nullptr},
    Test{"boolean", IsBoolean, nullptr},
    Test{"true", IsTrueValue, nullptr},
    Test{"false", IsFalseValue, nullptr},
    Test{"callable", IsCallable, nullptr},
    Test{"lower", IsLowerText, nullptr},
    Test{"upper", IsUpperText, nullptr},
    Test{"escaped", IsEscaped, nullptr},
    Test{"odd", IsOdd, nullptr},
    Test{"even", IsEven, nullptr},
    Test{"divisibleby", nullptr, IsDivisible},
    Test{"sameas", nullptr, IsSame},
    Test{"in", nullptr, IsIn},
    Test{"equalto", nullptr, IsEqual},
    Test{"eq", nullptr, IsEqual},
    Test{"==", nullptr, IsEqual},
    Test{"ne", nullptr, IsUnequal},
    Test{"!=", nullptr, IsUnequal},
    Test{"lt", nullptr, IsLess},
    Test{"<", nullptr, IsLess},
    Test{"lessthan", nullptr, IsLess},
    Test{"le", nullptr, IsAtMost},
    Test{"<=", nullptr, IsAtMost},
    Test{"gt", nullptr, IsGreater},
    Test{">", nullptr, IsGreater},
    Test{"greaterthan", nullptr, IsGreater},
    Test{"ge", nullptr, IsAtLeast},
    Test{">=", nullptr, IsAtLeast},
};

const Test* FindTest(std::string_view name) {
  const auto found = std::ranges::find(kTests, name, &Test::name);
  return found == kTests.end() ? nullptr : &*found;
}

}  // namespace

bool IsTest(std::string_view name) { return FindTest(name) != nullptr; }

bool TestValue(std::string_view name, const Value& value, const Arguments& arguments) {
  const Test* test = FindTest(name);
  if (test == nullptr) throw Fault(fmt::format("the test '{}' is not supported", name));
  if (test->alone != nullptr) {
    const BoundArguments none(name, arguments, {});
    return test->alone(value);
  }
  return test->with(value, BoundArguments(name, arguments, {"other"}).At(0));
}

}  // namespace spillway::jinja
