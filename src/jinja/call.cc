#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "src/jinja/interpreter.h"
#include "src/jinja/interpreter_level.h"
#include "src/jinja/values/fault.h"
#include "src/jinja/values/loop.h"
#include "src/jinja/values/methods.h"
#include "src/jinja/values/operators.h"
#include "src/jinja/values/print.h"

namespace spillway::jinja {
namespace {

constexpr std::array<std::string_view, 5> kFunctions = {"range", "dict", "namespace",
                                                        "raise_exception", "strftime_now"};

Value Range(const Arguments& arguments) {
  const bool has_start = arguments.given.size() > 1;
  const BoundArguments bound("range", arguments, {"start", "stop", "step"});
  bound.At(0);
  const long start = has_start ? bound.Int(0, 0) : 0;
  const long stop = has_start ? bound.Int(1, 0) : bound.Int(0, 0);
  const long step = bound.Int(2, 1);
  if (step == 0) throw Fault("range() arg 3 must not be zero");
  constexpr std::size_t kMaxRange = 100'000;  // the sandbox's
  Values items;
  for (long at = start; step > 0 ? at < stop : at > stop; at += step) {
    if (items.size() == kMaxRange)
      throw Fault(
          fmt::format("Range too big. The sandbox blocks ranges larger than {}.", kMaxRange));
    items.emplace_back(static_cast<int64_t>(at));
  }
  return MakeSequence(SequenceKind::kRange, std::move(items));
}

// dict(mapping or pairs, name=value, ...)
DictPtr MakeDict(const Arguments& arguments) {
  auto dict = MakeShared<Dict>();
  if (arguments.given.size() > 1) throw Fault("dict expected at most 1 argument");
  if (!arguments.given.empty()) {
    const Value& given = arguments.given.front();
    RefuseUndefined(given);
    if (const Dict* other = given.AsDict()) {
      *dict = *other;
    } else {
      for (const Value& pair : ItemsOf(given)) {
        const Values parts = ItemsOf(pair);
        if (parts.size() != 2) throw Fault("dict needs pairs of key and value");
        dict->Set(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict->Set(name, value);
  return dict;
}

[[noreturn]] void RaiseException(const Arguments& arguments) {
  const BoundArguments bound("raise_exception", arguments, {"message"});
  throw Fault(Str(bound.At(0)));
}

}  // namespace

bool IsFunction(std::string_view name) {
  return std::ranges::find(kFunctions, name) != kFunctions.end();
}

Value Interpreter::Call(const Value& callee, Arguments arguments) {
  RefuseUndefined(callee);
  const auto* callable = callee.As<CallablePtr>();
  if (callable == nullptr)
    throw Fault(fmt::format("'{}' object is not callable", TypeName(callee)));
  const Callable& function = **callable;
  switch (function.kind) {
    case CallableKind::kFunction:
      return CallFunction(function.name, arguments);
    case CallableKind::kMethod:
      return CallMethod(function.receiver, function.name, arguments);
    case CallableKind::kLoopMethod:
      return CallLoopMethod(**function.receiver.As<LoopPtr>(), function.name, arguments);
    case CallableKind::kMacro:
      return CallMacro(function, std::move(arguments));
  }
  return {};
}

Value Interpreter::CallFunction(const std::string& name, const Arguments& arguments) {
  if (name == "range") return Range(arguments);
  if (name == "dict") return MakeDict(arguments);
  if (name == "namespace") return MakeNamespace(arguments);
  if (name == "strftime_now") return FormatTime(arguments);
  RaiseException(arguments);
}

Value Interpreter::MakeNamespace(const Arguments& arguments) {
  auto space = MakeShared<Namespace>();
  const DictPtr members = MakeDict(arguments);
  for (const auto& [key, value] : members->members) {
    const std::string* name = key.AsText();
    if (name == nullptr || name->starts_with('_'))
      throw Fault("a namespace's members have names, not beginning with '_'");
    space->Set(*name, value);
  }
  namespaces_.push_back(space);
  return space;
}

// Python's strftime: of C, with %f, of which a run knows nothing.
Value Interpreter::FormatTime(const Arguments& arguments) const {
  const BoundArguments bound("strftime_now", arguments, {"format"});
  std::string format = bound.TextAt(0);
  constexpr std::size_t kMaxFormat = 1000;
  if (format.size() > kMaxFormat) throw Fault("strftime_now: the format is too long");
  Spend(8 * format.size());
  for (std::size_t at = 0; (at = format.find('%', at)) != std::string::npos; at += 2) {
    if (format.compare(at, 2, "%f") == 0) format.replace(at, 2, "000000");
  }
  std::array<char, 8192> buffer;
  // A letter in front: no text at all is not taken for too small a buffer.
  const std::size_t size =
      std::strftime(buffer.data(), buffer.size(), ("." + format).c_str(), &now_);
  if (size == 0) throw Fault("strftime_now: the result is too long");
  return std::string(buffer.data() + 1, size - 1);
}

// Fills in the parameters from the left, then by name; what is over goes to varargs and kwargs.
void Interpreter::BindParameters(const Statement& definition, Arguments arguments, Scope& scope) {
  const std::string& macro = definition.text;
  Spend(definition.parameters.size() * (1 + arguments.named.size() / 16));
  Values& given = arguments.given;
  std::size_t place = 0;
  for (const Parameter& parameter : definition.parameters) {
    const auto named =
        std::ranges::find(arguments.named, parameter.name, &std::pair<std::string, Value>::first);
    if (place < given.size()) {
      if (named != arguments.named.end())
        throw Fault(fmt::format("macro '{}' got '{}' twice", macro, parameter.name));
      scope.names[parameter.name] = given[place++];
    } else if (named != arguments.named.end()) {
      scope.names[parameter.name] = named->second;
      arguments.named.erase(named);
    } else if (parameter.fallback != nullptr) {
      scope.names[parameter.name] = Evaluate(*parameter.fallback);
    } else {
      scope.names[parameter.name] =
          MakeUndefined(fmt::format("parameter '{}' was not provided", parameter.name));
    }
  }
  given.erase(given.begin(), given.begin() + static_cast<std::ptrdiff_t>(place));
  if (!given.empty() && !definition.uses_varargs)
    throw Fault(fmt::format("macro '{}' takes not more than {} argument(s)", macro, place));
  if (definition.uses_varargs) scope.names["varargs"] = MakeTuple(std::move(given));
  if (definition.uses_caller) {
    const auto caller =
        std::ranges::find(arguments.named, "caller", &std::pair<std::string, Value>::first);
    scope.names["caller"] =
        caller == arguments.named.end() ? MakeUndefined("No caller defined") : caller->second;
    if (caller != arguments.named.end()) arguments.named.erase(caller);
  }
  if (definition.uses_kwargs) {
    scope.names["kwargs"] = MakeDict({{}, std::move(arguments.named), {}});
  } else if (!arguments.named.empty()) {
    throw Fault(fmt::format("macro '{}' takes no keyword argument '{}'", macro,
                            arguments.named.front().first));
  }
}

Value Interpreter::CallMacro(const Callable& macro, Arguments arguments) {
  const Level level(depth_, max_depth_);
  const InnerScope inner(scope_, macro.scope);
  BindParameters(*macro.macro, std::move(arguments), *scope_);
  return Captured(macro.macro->body);
}

}  // namespace spillway::jinja
