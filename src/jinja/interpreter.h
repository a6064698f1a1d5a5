// Interpreter: one rendering of a parsed template, within bounds on what it may do.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "src/jinja/node.h"
#include "src/jinja/parser.h"
#include "src/jinja/runtime.h"
#include "src/jinja/scope.h"
#include "src/jinja/values/text_builder.h"
#include "src/jinja/values/value.h"

namespace spillway::jinja {

// Bounds of one rendering: what real templates need a hundredth of.
struct RenderLimits {
  std::size_t units = 10'000'000;  // of work: a second
  std::size_t bytes = 64 << 20;    // of all values and of the text, at a time
  int depth = 600;                 // of calls and expressions in one another
};

class Interpreter final : public Runtime {
 public:
  // Lifetime: the template outlives it. `now` is what strftime_now tells. `max_depth`: of calls and
  // expressions in one another. What it does and holds is taken from the thread's Budget.
  Interpreter(const ParsedTemplate& parsed, const std::tm& now, int max_depth);
  ~Interpreter() override;
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Renders with the members of `context` as variables. Throws: Fault with its line.
  // Requires: called once.
  std::string Render(const Dict& context);

  Value ApplyFilter(const std::string& name, const Value& value,
                    const Arguments& arguments) override;
  bool ApplyTest(const std::string& name, const Value& value, const Arguments& arguments) override;

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Level;
  class InnerScope;

  // Statements.
  Flow Run(const Block& block);
  Flow RunOne(const Statement& statement);
  Flow RunFor(const Statement& loop);
  Values ChosenItems(const Statement& loop, Values items);
  void RunSet(const Statement& set);
  void RunSetBlock(const Statement& set);
  void RunMacro(const Statement& macro);
  void RunCallBlock(const Statement& call);
  void RunFilterBlock(const Statement& filter);
  Flow RunWith(const Statement& with);
  void Write(const Value& value);
  std::string Captured(const Block& block);
  void Assign(const Expression& target, const Value& value);
  CallablePtr MakeMacro(const Statement& definition);

  // Expressions.
  Value Evaluate(const Expression& node);
  Value EvaluateOperation(const Expression& node);
  Value EvaluateAccess(const Expression& node);
  Value EvaluateName(const Expression& node);
  Value EvaluateItems(const Expression& node);
  Value EvaluateConcat(const Expression& node);
  Value EvaluateCompare(const Expression& node);
  Value EvaluateConditional(const Expression& node);
  Value EvaluateSlice(const Expression& node);
  Value EvaluateCall(const Expression& node);
  Arguments EvaluateArguments(const ArgumentNodes& nodes);

  // Calls.
  Value Call(const Value& callee, Arguments arguments);
  Value CallFunction(const std::string& name, const Arguments& arguments);
  Value CallMacro(const Callable& macro, Arguments arguments);
  void BindParameters(const Statement& definition, Arguments arguments, Scope& scope);
  Value FormatTime(const Arguments& arguments) const;
  Value MakeNamespace(const Arguments& arguments);

  const ParsedTemplate& parsed_;
  std::tm now_;
  int max_depth_;
  int depth_ = 0;
  std::shared_ptr<Scope> scope_;
  TextBuilder* out_ = nullptr;
  Values captured_;
  // Values that may hold themselves, taken apart at the end: no chain is ever freed by recursion.
  std::vector<NamespacePtr, CountingAllocator<NamespacePtr>> namespaces_;
  std::vector<std::shared_ptr<Callable>, CountingAllocator<std::shared_ptr<Callable>>> macros_;
};

// Tells whether there is a function of that name: range, dict, namespace, raise_exception,
// strftime_now.
bool IsFunction(std::string_view name);

}  // namespace spillway::jinja
