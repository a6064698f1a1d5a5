#include <fmt/format.h>

#include <utility>

#include "src/jinja/expression_nodes.h"
#include "src/jinja/expression_parser.h"
#include "src/jinja/filters.h"
#include "src/jinja/tests.h"
#include "src/jinja/values/fault.h"
#include "src/jinja/values/methods.h"

namespace spillway::jinja {

ExpressionPtr ExpressionParser::Postfix(ExpressionPtr node) {
  const int outer = depth_;
  while (true) {
    Deepen(depth_, tokens_.line());
    if (tokens_.IsOperator(".") || tokens_.IsOperator("[")) {
      node = Subscript(std::move(node));
    } else if (tokens_.IsOperator("(")) {
      node = Call(std::move(node));
    } else {
      break;
    }
  }
  depth_ = outer;
  return node;
}

ExpressionPtr ExpressionParser::Subscript(ExpressionPtr node) {
  const int line = tokens_.line();
  if (tokens_.SkipOperator("[")) {
    ExpressionPtr item = Index();
    tokens_.ExpectOperator("]");
    if (item->kind == ExpressionKind::kSlice) {
      item->children.front() = std::move(node);
      return item;
    }
    return Over(ExpressionKind::kItem, line, std::move(node), std::move(item));
  }
  tokens_.ExpectOperator(".");
  if (tokens_.Is(TokenKind::kInteger))
    return Over(ExpressionKind::kItem, line, std::move(node), Number());
  ExpressionPtr attribute = Over(ExpressionKind::kAttribute, line, std::move(node));
  attribute->name = tokens_.ExpectName();
  return attribute;
}

// Index in [ ]: an expression, or a slice whose first child is left free.
ExpressionPtr ExpressionParser::Index() {
  if (tokens_.IsOperator(":")) return SliceRest(nullptr);
  ExpressionPtr first = Expression();
  if (tokens_.IsOperator(":")) return SliceRest(std::move(first));
  if (!tokens_.IsOperator(",")) return first;
  ExpressionPtr tuple = Over(ExpressionKind::kTuple, first->line, std::move(first));
  while (tokens_.SkipOperator(",")) tuple->children.push_back(Expression());
  return tuple;
}

ExpressionPtr ExpressionParser::SliceRest(ExpressionPtr start) {
  ExpressionPtr slice = MakeNode(ExpressionKind::kSlice, tokens_.line());
  slice->children.resize(4);
  slice->children[1] = std::move(start);
  for (std::size_t part = 2; part < 4 && tokens_.SkipOperator(":"); ++part) {
    if (!tokens_.IsOperator(":") && !tokens_.IsOperator("]")) slice->children[part] = Expression();
  }
  return slice;
}

ExpressionPtr ExpressionParser::FilterOrTest(ExpressionPtr node) {
  const int outer = depth_;
  while (true) {
    Deepen(depth_, tokens_.line());
    if (tokens_.SkipOperator("|")) {
      node = Filter(std::move(node));
    } else if (tokens_.SkipName("is")) {
      node = Test(std::move(node));
    } else if (tokens_.IsOperator("(")) {
      node = Call(std::move(node));
    } else {
      break;
    }
  }
  depth_ = outer;
  return node;
}

ExpressionPtr ExpressionParser::Filter(ExpressionPtr node) {
  const int line = tokens_.line();
  ExpressionPtr filter = Over(ExpressionKind::kFilter, line, std::move(node));
  filter->name = tokens_.ExpectName();
  if (!IsFilter(filter->name))
    throw Fault(fmt::format("the filter '{}' is not supported", filter->name), line);
  if (tokens_.IsOperator("(")) filter->arguments = Arguments();
  return filter;
}

ExpressionPtr ExpressionParser::FiltersOfBlock() {
  ExpressionPtr node = Filter(MakeNode(ExpressionKind::kCaptured, tokens_.line()));
  while (tokens_.SkipOperator("|")) node = Filter(std::move(node));
  return node;
}

bool ExpressionParser::OpensTestArgument() const {
  if (tokens_.IsName("else") || tokens_.IsName("or") || tokens_.IsName("and")) return false;
  return tokens_.Is(TokenKind::kName) || tokens_.Is(TokenKind::kString) ||
         tokens_.Is(TokenKind::kInteger) || tokens_.Is(TokenKind::kFloat) ||
         tokens_.IsOperator("[") || tokens_.IsOperator("{");
}

ExpressionPtr ExpressionParser::Test(ExpressionPtr node) {
  const int line = tokens_.line();
  const bool negated = tokens_.SkipName("not");
  ExpressionPtr test = Over(ExpressionKind::kTest, line, std::move(node));
  test->name = tokens_.ExpectName();
  if (!IsTest(test->name))
    throw Fault(fmt::format("the test '{}' is not supported", test->name), line);
  if (tokens_.IsOperator("(")) {
    test->arguments = Arguments();
  } else if (OpensTestArgument()) {
    if (tokens_.IsName("is")) throw Fault("tests cannot be chained with 'is'", line);
    test->arguments.given.push_back(Postfix(Primary()));
  }
  return negated ? Over(ExpressionKind::kNot, line, std::move(test)) : std::move(test);
}

ExpressionPtr ExpressionParser::Call(ExpressionPtr node) {
  const int line = tokens_.line();
  if (node->kind == ExpressionKind::kAttribute && IsUnsupportedMethod(node->name))
    throw Fault(fmt::format("the method '{}' is not supported", node->name), line);
  ExpressionPtr call = Over(ExpressionKind::kCall, line, std::move(node));
  call->arguments = Arguments();
  return call;
}

ArgumentNodes ExpressionParser::Arguments() {
  ArgumentNodes arguments;
  tokens_.ExpectOperator("(");
  bool is_first = true;
  while (!tokens_.IsOperator(")")) {
    if (!is_first) tokens_.ExpectOperator(",");
    if (tokens_.IsOperator(")")) break;
    is_first = false;
    Argument(arguments);
  }
  tokens_.ExpectOperator(")");
  return arguments;
}

void ExpressionParser::Argument(ArgumentNodes& arguments) {
  const int line = tokens_.line();
  const bool has_dict = arguments.named_dict != nullptr;
  const bool has_list = arguments.given_list != nullptr;
  bool is_fine = !has_dict;
  if (tokens_.SkipOperator("*")) {
    is_fine &= !has_list;
    arguments.given_list = Expression();
  } else if (tokens_.SkipOperator("**")) {
    arguments.named_dict = Expression();
  } else if (tokens_.Is(TokenKind::kName) && tokens_.IsNextOperator("=")) {
    std::string name = tokens_.Take().text;
    tokens_.Take();
    arguments.named.emplace_back(std::move(name), Expression());
  } else {
    is_fine &= !has_list && arguments.named.empty();
    arguments.given.push_back(Expression());
  }
  if (!is_fine) throw Fault("the order of a call's arguments is not valid", line);
}

}  // namespace spillway::jinja
