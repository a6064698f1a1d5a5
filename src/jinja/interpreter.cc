#include "src/jinja/interpreter.h"

#include <fmt/format.h>

#include <utility>

#include "src/jinja/filters.h"
#include "src/jinja/interpreter_level.h"
#include "src/jinja/tests.h"
#include "src/jinja/values/fault.h"
#include "src/jinja/values/operators.h"
#include "src/jinja/values/print.h"

namespace spillway::jinja {

Interpreter::Interpreter(const ParsedTemplate& parsed, const std::tm& now, int max_depth)
    : parsed_(parsed), now_(now), max_depth_(max_depth), scope_(MakeShared<Scope>()) {}

Interpreter::~Interpreter() {
  for (const NamespacePtr& space : namespaces_) space->members.clear();
  for (const auto& macro : macros_) macro->scope.reset();
}

std::string Interpreter::Render(const Dict& context) {
  for (const auto& [name, value] : context.members) {
    if (const std::string* text = name.AsText()) scope_->names.insert_or_assign(*text, value);
  }
  return Captured(parsed_.body);
}

Value Interpreter::ApplyFilter(const std::string& name, const Value& value,
                               const Arguments& arguments) {
  return FilterValue(name, value, arguments, *this);
}

bool Interpreter::ApplyTest(const std::string& name, const Value& value,
                            const Arguments& arguments) {
  return TestValue(name, value, arguments);
}

Interpreter::Flow Interpreter::Run(const Block& block) {
  const Level level(depth_, max_depth_);
  for (const Statement& statement : block) {
    try {
      const Flow flow = RunOne(statement);
      if (flow != Flow::kNext) return flow;
    } catch (const Fault& fault) {
      if (fault.line() > 0) throw;
      throw Fault(fault.what(), statement.line);
    }
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunOne(const Statement& statement) {
  Spend(1);
  switch (statement.kind) {
    case StatementKind::kText:
      out_->Add(statement.text);
      return Flow::kNext;
    case StatementKind::kOutput:
      Write(Evaluate(*statement.value));
      return Flow::kNext;
    case StatementKind::kFor:
      return RunFor(statement);
    case StatementKind::kIf:
      return Run(Evaluate(*statement.value).IsTrue() ? statement.body : statement.otherwise);
    case StatementKind::kSet:
      RunSet(statement);
      return Flow::kNext;
    case StatementKind::kSetBlock:
      RunSetBlock(statement);
      return Flow::kNext;
    case StatementKind::kMacro:
      RunMacro(statement);
      return Flow::kNext;
    case StatementKind::kCallBlock:
      RunCallBlock(statement);
      return Flow::kNext;
    case StatementKind::kFilterBlock:
      RunFilterBlock(statement);
      return Flow::kNext;
    case StatementKind::kWith:
      return RunWith(statement);
    case StatementKind::kScope: {
      const InnerScope inner(scope_);
      return Run(statement.body);
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

void Interpreter::Write(const Value& value) { out_->Add(Shown(value).text()); }

std::string Interpreter::Captured(const Block& block) {
  TextBuilder text;
  TextBuilder* const outer = std::exchange(out_, &text);
  try {
    Run(block);
  } catch (...) {
    out_ = outer;
    throw;
  }
  out_ = outer;
  return text.Take();
}

// The items that pass the loop's condition.
Values Interpreter::ChosenItems(const Statement& loop, Values items) {
  if (loop.condition == nullptr) return items;
  Values chosen;
  for (Value& item : items) {
    const InnerScope inner(scope_);
    Assign(*loop.target, item);
    if (Evaluate(*loop.condition).IsTrue()) chosen.push_back(std::move(item));
  }
  return chosen;
}

Interpreter::Flow Interpreter::RunFor(const Statement& loop) {
  const Value over = Evaluate(*loop.value);
  auto state = MakeShared<Loop>();
  state->items = ChosenItems(loop, ItemsOf(over));
  state->value_depth = DepthOf(state->items) + 1;
  if (state->items.empty()) {
    const InnerScope inner(scope_);
    return Run(loop.otherwise);
  }
  for (; state->index < state->items.size(); ++state->index) {
    const InnerScope inner(scope_);
    scope_->names.insert_or_assign("loop", state);
    Assign(*loop.target, state->items[state->index]);
    if (Run(loop.body) == Flow::kBreak) break;
  }
  if (state->index == state->items.size()) --state->index;  // loop may have been kept
  return Flow::kNext;
}

void Interpreter::Assign(const Expression& target, const Value& value) {
  if (target.kind == ExpressionKind::kName) {
    scope_->names.insert_or_assign(target.name, value);
    return;
  }
  if (target.kind == ExpressionKind::kMemberTarget) {
    const Value* found = scope_->Find(target.name);
    const auto* space = found == nullptr ? nullptr : found->As<NamespacePtr>();
    if (space == nullptr) throw Fault("cannot assign attribute on non-namespace object");
    if (target.member.starts_with('_'))
      throw Fault(fmt::format("a namespace's member may not begin with '_': '{}'", target.member));
    (*space)->Set(target.member, value);
    return;
  }
  RefuseUndefined(value);
  const Values items = ItemsOf(value);
  if (items.size() != target.children.size()) {
    throw Fault(
        fmt::format("{} values to unpack, expected {}", items.size(), target.children.size()));
  }
  for (std::size_t i = 0; i < items.size(); ++i) Assign(*target.children[i], items[i]);
}

void Interpreter::RunSet(const Statement& set) { Assign(*set.target, Evaluate(*set.value)); }

void Interpreter::RunSetBlock(const Statement& set) {
  std::string text;
  {
    const InnerScope inner(scope_);
    text = Captured(set.body);
  }
  Value value = std::move(text);
  if (set.value != nullptr) {
    captured_.push_back(std::move(value));
    value = Evaluate(*set.value);
    captured_.pop_back();
  }
  Assign(*set.target, value);
}

CallablePtr Interpreter::MakeMacro(const Statement& definition) {
  auto macro = MakeShared<Callable>();
  macro->kind = CallableKind::kMacro;
  macro->name = definition.text;
  macro->macro = &definition;
  macro->scope = scope_;
  macros_.push_back(macro);
  return macro;
}

void Interpreter::RunMacro(const Statement& macro) {
  scope_->names.insert_or_assign(macro.text, MakeMacro(macro));
}

// The block is given to the call as its argument `caller`.
void Interpreter::RunCallBlock(const Statement& call) {
  const Expression& node = *call.value;
  const Value callee = Evaluate(*node.children.front());
  Arguments arguments = EvaluateArguments(node.arguments);
  arguments.named.emplace_back("caller", MakeMacro(call));
  Write(Call(callee, std::move(arguments)));
}

void Interpreter::RunFilterBlock(const Statement& filter) {
  std::string text;
  {
    const InnerScope inner(scope_);
    text = Captured(filter.body);
  }
  captured_.emplace_back(std::move(text));
  const Value value = Evaluate(*filter.value);
  captured_.pop_back();
  Write(value);
}

// All values are computed before the first name is set.
Interpreter::Flow Interpreter::RunWith(const Statement& with) {
  Values values;
  for (const auto& [target, value] : with.assignments) values.push_back(Evaluate(*value));
  const InnerScope inner(scope_);
  for (std::size_t i = 0; i < values.size(); ++i) Assign(*with.assignments[i].first, values[i]);
  return Run(with.body);
}

}  // namespace spillway::jinja
