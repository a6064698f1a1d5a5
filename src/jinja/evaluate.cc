#include <fmt/format.h>

#include <utility>

#include "src/jinja/interpreter.h"
#include "src/jinja/interpreter_level.h"
#include "src/jinja/values/fault.h"
#include "src/jinja/values/operators.h"
#include "src/jinja/values/print.h"

namespace spillway::jinja {

Value Interpreter::Evaluate(const Expression& node) {
  const Level level(depth_, max_depth_);
  Spend(1);
  switch (node.kind) {
    case ExpressionKind::kConstant:
      return node.constant;
    case ExpressionKind::kName:
      return EvaluateName(node);
    case ExpressionKind::kCaptured:
      return captured_.back();
    case ExpressionKind::kList:
    case ExpressionKind::kTuple:
    case ExpressionKind::kDict:
      return EvaluateItems(node);
    case ExpressionKind::kAttribute:
    case ExpressionKind::kItem:
    case ExpressionKind::kSlice:
      return EvaluateAccess(node);
    case ExpressionKind::kCall:
    case ExpressionKind::kFilter:
    case ExpressionKind::kTest:
      return EvaluateCall(node);
    default:
      return EvaluateOperation(node);
  }
}

Value Interpreter::EvaluateOperation(const Expression& node) {
  const auto child = [&](std::size_t place) { return Evaluate(*node.children[place]); };
  switch (node.kind) {
    case ExpressionKind::kNegative:
      return Negated(child(0));
    case ExpressionKind::kPositive:
      return BinaryOperation("+", Integer{0}, child(0));
    case ExpressionKind::kBinary: {
      const Value left = child(0);
      return BinaryOperation(node.name, left, child(1));
    }
    case ExpressionKind::kAnd: {
      Value left = child(0);
      return left.IsTrue() ? child(1) : left;
    }
    case ExpressionKind::kOr: {
      Value left = child(0);
      return left.IsTrue() ? left : child(1);
    }
    case ExpressionKind::kNot:
      return !child(0).IsTrue();
    case ExpressionKind::kConcat:
      return EvaluateConcat(node);
    case ExpressionKind::kCompare:
      return EvaluateCompare(node);
    default:
      return EvaluateConditional(node);
  }
}

Value Interpreter::EvaluateName(const Expression& node) {
  if (const Value* found = scope_->Find(node.name)) return *found;
  if (!IsFunction(node.name)) return MakeUndefined(fmt::format("'{}' is undefined", node.name));
  auto function = MakeShared<Callable>();
  function->name = node.name;
  return CallablePtr(std::move(function));
}

Value Interpreter::EvaluateItems(const Expression& node) {
  Values items;
  for (const ExpressionPtr& child : node.children) items.push_back(Evaluate(*child));
  if (node.kind == ExpressionKind::kList) return MakeList(std::move(items));
  if (node.kind == ExpressionKind::kTuple) return MakeTuple(std::move(items));
  auto dict = MakeShared<Dict>();
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) dict->Set(items[i], items[i + 1]);
  return DictPtr(std::move(dict));
}

// a ~ b: as texts. Nothing is escaped, not even beside markup.
Value Interpreter::EvaluateConcat(const Expression& node) {
  TextBuilder out;
  for (const ExpressionPtr& child : node.children) out.Add(Shown(Evaluate(*child)).text());
  return out.Take();
}

Value Interpreter::EvaluateCompare(const Expression& node) {
  Value left = Evaluate(*node.children.front());
  for (std::size_t i = 0; i < node.operators.size(); ++i) {
    Value right = Evaluate(*node.children[i + 1]);
    if (!Compare(node.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::EvaluateConditional(const Expression& node) {
  if (Evaluate(*node.children[0]).IsTrue()) return Evaluate(*node.children[1]);
  if (node.children[2] != nullptr) return Evaluate(*node.children[2]);
  return MakeUndefined(
      fmt::format("the inline if-expression on line {} evaluated to false and no "
                  "else section was defined.",
                  node.line));
}

Value Interpreter::EvaluateAccess(const Expression& node) {
  if (node.kind == ExpressionKind::kSlice) return EvaluateSlice(node);
  const Value object = Evaluate(*node.children.front());
  if (node.kind == ExpressionKind::kAttribute) return AttributeOf(object, node.name);
  const Value key = Evaluate(*node.children[1]);
  return ItemOf(object, key);
}

Value Interpreter::EvaluateSlice(const Expression& node) {
  const Value object = Evaluate(*node.children.front());
  const auto bound = [&](std::size_t place) -> std::optional<Integer> {
    if (node.children[place] == nullptr) return std::nullopt;
    const Value value = Evaluate(*node.children[place]);
    if (value.Is<None>()) return std::nullopt;
    RefuseUndefined(value);
    const auto integer = value.AsInteger();
    if (!integer) throw Fault("slice indices must be integers or None");
    return integer;
  };
  const SliceBounds bounds = {bound(1), bound(2), bound(3)};
  return SliceOf(object, bounds);
}

Arguments Interpreter::EvaluateArguments(const ArgumentNodes& nodes) {
  Arguments arguments;
  for (const ExpressionPtr& node : nodes.given) arguments.given.push_back(Evaluate(*node));
  if (nodes.given_list != nullptr) {
    for (Value& item : ItemsOf(Evaluate(*nodes.given_list)))
      arguments.given.push_back(std::move(item));
  }
  for (const auto& [name, node] : nodes.named) arguments.named.emplace_back(name, Evaluate(*node));
  if (nodes.named_dict != nullptr) {
    const Value named = Evaluate(*nodes.named_dict);
    if (named.AsDict() == nullptr) throw Fault("argument after ** must be a mapping");
    for (const auto& [name, value] : named.AsDict()->members) {
      const Shown shown(name);
      arguments.name_bytes.Add(shown.text().size());
      arguments.named.emplace_back(shown.text(), value);
    }
  }
  return arguments;
}

Value Interpreter::EvaluateCall(const Expression& node) {
  const Value subject = Evaluate(*node.children.front());
  Arguments arguments = EvaluateArguments(node.arguments);
  if (node.kind == ExpressionKind::kFilter) return ApplyFilter(node.name, subject, arguments);
  if (node.kind == ExpressionKind::kTest) return ApplyTest(node.name, subject, arguments);
  return Call(subject, std::move(arguments));
}

}  // namespace spillway::jinja
