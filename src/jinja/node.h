// Nodes: a template as it was parsed. Thread rule: immutable after parsing.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/jinja/values/value.h"

namespace spillway::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

// Arguments of a call, a filter or a test, as written.
struct ArgumentNodes {
  std::vector<ExpressionPtr> given;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr given_list;  // *list
  ExpressionPtr named_dict;  // **dict
};

enum class ExpressionKind {
  kConstant,
  kName,
  kMemberTarget,  // ns.name on the left of a set; `name` and `member`
  kList,
  kTuple,
  kDict,  // children: key, value, key, value, ...
  kNegative,
  kPositive,
  kBinary,  // name: + - * / // % **
  kConcat,  // children
  kAnd,
  kOr,
  kNot,
  kCompare,      // children: operands; operators between them
  kConditional,  // children: condition, value, other value or null
  kAttribute,    // child.name
  kItem,         // child[child]
  kSlice,        // child[child:child:child], all but the first may be null
  kCall,         // child(arguments)
  kFilter,       // child|name(arguments)
  kTest,         // child is name(arguments)
  kCaptured      // text of the block that a filter stands for
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  int line = 0;
  std::string name;
  std::string member;
  Value constant;
  std::vector<ExpressionPtr> children;
  std::vector<std::string> operators;
  ArgumentNodes arguments;
};

enum class StatementKind {
  kText,
  kOutput,       // value
  kFor,          // target in value if condition: body, otherwise
  kIf,           // value: body, otherwise
  kSet,          // target = value
  kSetBlock,     // target = filtered body; value: the filters, or null
  kMacro,        // text: its name
  kCallBlock,    // value: the call; body with parameters is its caller
  kFilterBlock,  // value: the filters
  kWith,         // assignments, body
  kScope,        // body in a scope of its own: {% generation %}, {% print %}
  kBreak,
  kContinue
};

struct Statement;
using Block = std::vector<Statement>;

struct Parameter {
  std::string name;
  ExpressionPtr fallback;  // null: none
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 0;
  std::string text;
  ExpressionPtr target;
  ExpressionPtr value;
  ExpressionPtr condition;
  std::vector<Parameter> parameters;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> assignments;
  Block body;
  Block otherwise;
  // Names that a macro's body uses beside its parameters.
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

}  // namespace spillway::jinja
