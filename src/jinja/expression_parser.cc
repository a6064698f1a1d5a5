#include "src/jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "src/jinja/expression_nodes.h"
#include "src/jinja/values/fault.h"
#include "src/jinja/values/number_text.h"

namespace spillway::jinja {

ExpressionPtr ExpressionParser::Expression() {
  const Nesting nesting(depth_, tokens_.line());
  return Conditional();
}

ExpressionPtr ExpressionParser::Conditional() {
  const int line = tokens_.line();
  ExpressionPtr node = Or();
  while (tokens_.SkipName("if")) {
    ExpressionPtr chosen = Over(ExpressionKind::kConditional, line, Or(), std::move(node));
    if (tokens_.SkipName("else")) {
      const Nesting nesting(depth_, line);
      chosen->children.push_back(Conditional());
    } else {
      chosen->children.push_back(nullptr);
    }
    node = std::move(chosen);
  }
  return node;
}

ExpressionPtr ExpressionParser::Or() {
  const int line = tokens_.line();
  ExpressionPtr left = And();
  while (tokens_.SkipName("or")) left = Over(ExpressionKind::kOr, line, std::move(left), And());
  return left;
}

ExpressionPtr ExpressionParser::And() {
  const int line = tokens_.line();
  ExpressionPtr left = Not();
  while (tokens_.SkipName("and")) left = Over(ExpressionKind::kAnd, line, std::move(left), Not());
  return left;
}

ExpressionPtr ExpressionParser::Not() {
  const int line = tokens_.line();
  if (!tokens_.SkipName("not")) return Compare();
  const Nesting nesting(depth_, line);
  return Over(ExpressionKind::kNot, line, Not());
}

ExpressionPtr ExpressionParser::Compare() {
  static constexpr std::array kOperators = {"==", "!=", "<", "<=", ">", ">="};
  const int line = tokens_.line();
  ExpressionPtr node = Over(ExpressionKind::kCompare, line, Sum());
  while (true) {
    const auto is_now = [this](const char* text) { return tokens_.IsOperator(text); };
    if (std::ranges::any_of(kOperators, is_now)) {
      node->operators.push_back(tokens_.Take().text);
    } else if (tokens_.SkipName("in")) {
      node->operators.emplace_back("in");
    } else if (tokens_.IsName("not") && tokens_.IsNextName("in")) {
      tokens_.Take();
      tokens_.Take();
      node->operators.emplace_back("not in");
    } else {
      break;
    }
    node->children.push_back(Sum());
  }
  return node->operators.empty() ? std::move(node->children.front()) : std::move(node);
}

ExpressionPtr ExpressionParser::Sum() {
  const int line = tokens_.line();
  ExpressionPtr left = Concat();
  while (tokens_.IsOperator("+") || tokens_.IsOperator("-")) {
    std::string name = tokens_.Take().text;
    left = Binary(std::move(name), line, std::move(left), Concat());
  }
  return left;
}

ExpressionPtr ExpressionParser::Concat() {
  const int line = tokens_.line();
  ExpressionPtr node = Over(ExpressionKind::kConcat, line, Product());
  while (tokens_.SkipOperator("~")) node->children.push_back(Product());
  return node->children.size() == 1 ? std::move(node->children.front()) : std::move(node);
}

ExpressionPtr ExpressionParser::Product() {
  const int line = tokens_.line();
  ExpressionPtr left = Power();
  while (tokens_.IsOperator("*") || tokens_.IsOperator("/") || tokens_.IsOperator("//") ||
         tokens_.IsOperator("%")) {
    std::string name = tokens_.Take().text;
    left = Binary(std::move(name), line, std::move(left), Power());
  }
  return left;
}

ExpressionPtr ExpressionParser::Power() {
  const int line = tokens_.line();
  ExpressionPtr left = Unary();
  while (tokens_.SkipOperator("**")) left = Binary("**", line, std::move(left), Unary());
  return left;
}

ExpressionPtr ExpressionParser::Unary() { return FilterOrTest(Postfix(Signed())); }

// A sign binds the expression behind it, its own subscripts included, but not filters.
ExpressionPtr ExpressionParser::Signed() {
  const int line = tokens_.line();
  const bool is_minus = tokens_.IsOperator("-");
  if (!is_minus && !tokens_.IsOperator("+")) return Primary();
  tokens_.Take();
  const Nesting nesting(depth_, line);
  return Over(is_minus ? ExpressionKind::kNegative : ExpressionKind::kPositive, line,
              Postfix(Signed()));
}

ExpressionPtr ExpressionParser::Primary() {
  const Nesting nesting(depth_, tokens_.line());
  if (tokens_.Is(TokenKind::kName)) return Name();
  if (tokens_.Is(TokenKind::kString)) return Strings();
  if (tokens_.Is(TokenKind::kInteger) || tokens_.Is(TokenKind::kFloat)) return Number();
  if (tokens_.SkipOperator("(")) {
    ExpressionPtr node = tokens_.IsOperator(")") ? MakeNode(ExpressionKind::kTuple, tokens_.line())
                                                 : Tuple(TupleParts::kAll);
    tokens_.ExpectOperator(")");
    return node;
  }
  if (tokens_.IsOperator("[")) return List();
  if (tokens_.IsOperator("{")) return DictDisplay();
  throw Fault(fmt::format("unexpected {}", Described(tokens_.now())), tokens_.line());
}

ExpressionPtr ExpressionParser::Name() {
  const Token token = tokens_.Take();
  if (token.text == "true" || token.text == "True") return Constant(true, token.line);
  if (token.text == "false" || token.text == "False") return Constant(false, token.line);
  if (token.text == "none" || token.text == "None") return Constant({}, token.line);
  ExpressionPtr node = MakeNode(ExpressionKind::kName, token.line);
  node->name = token.text;
  names_read_.push_back({token.text, token.line});
  return node;
}

ExpressionPtr ExpressionParser::Strings() {
  const int line = tokens_.line();
  std::string text;
  while (tokens_.Is(TokenKind::kString)) text += tokens_.Take().text;
  return Constant(std::move(text), line);
}

ExpressionPtr ExpressionParser::Number() {
  const Token token = tokens_.Take();
  const char* end = token.text.data() + token.text.size();
  if (token.kind == TokenKind::kFloat) {
    double real = 0.0;
    if (std::from_chars(token.text.data(), end, real).ec == std::errc())
      return Constant(real, token.line);
  } else if (const auto integer = ReadInteger(token.text)) {
    return Constant(*integer, token.line);
  }
  throw Fault(fmt::format("the number {} is out of range", token.text), token.line);
}

ExpressionPtr ExpressionParser::List() {
  ExpressionPtr node = MakeNode(ExpressionKind::kList, tokens_.line());
  tokens_.ExpectOperator("[");
  while (!tokens_.IsOperator("]")) {
    if (!node->children.empty()) tokens_.ExpectOperator(",");
    if (tokens_.IsOperator("]")) break;
    node->children.push_back(Expression());
  }
  tokens_.ExpectOperator("]");
  return node;
}

ExpressionPtr ExpressionParser::DictDisplay() {
  ExpressionPtr node = MakeNode(ExpressionKind::kDict, tokens_.line());
  tokens_.ExpectOperator("{");
  while (!tokens_.IsOperator("}")) {
    if (!node->children.empty()) tokens_.ExpectOperator(",");
    if (tokens_.IsOperator("}")) break;
    node->children.push_back(Expression());
    tokens_.ExpectOperator(":");
    node->children.push_back(Expression());
  }
  tokens_.ExpectOperator("}");
  return node;
}

bool ExpressionParser::IsTupleEnd(std::string_view end) const {
  return tokens_.Is(TokenKind::kVariableEnd) || tokens_.Is(TokenKind::kBlockEnd) ||
         tokens_.IsOperator(")") || (!end.empty() && tokens_.IsName(end));
}

ExpressionPtr ExpressionParser::Tuple(TupleParts parts, std::string_view end) {
  const Nesting nesting(depth_, tokens_.line());
  ExpressionPtr tuple = MakeNode(ExpressionKind::kTuple, tokens_.line());
  bool is_tuple = false;
  while (!IsTupleEnd(end)) {
    tuple->children.push_back(parts == TupleParts::kAll ? Expression() : Or());
    if (!tokens_.SkipOperator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return tuple;
  if (!tuple->children.empty()) return std::move(tuple->children.front());
  throw Fault(fmt::format("expected an expression, got {}", Described(tokens_.now())),
              tokens_.line());
}

ExpressionPtr ExpressionParser::TargetItem(bool takes_members) {
  if (tokens_.SkipOperator("(")) {
    ExpressionPtr inner = Target("");
    tokens_.ExpectOperator(")");
    return inner;
  }
  const int line = tokens_.line();
  ExpressionPtr node = MakeNode(ExpressionKind::kName, line);
  node->name = tokens_.ExpectName();
  static constexpr std::array kConstants = {"true", "false", "none", "True", "False", "None"};
  if (std::ranges::find(kConstants, node->name) != kConstants.end())
    throw Fault(fmt::format("cannot assign to '{}'", node->name), line);
  if (takes_members && tokens_.SkipOperator(".")) {
    node->kind = ExpressionKind::kMemberTarget;
    node->member = tokens_.ExpectName();
    names_read_.push_back({node->name, line});
  } else {
    names_set_.push_back(node->name);
  }
  return node;
}

ExpressionPtr ExpressionParser::Target(std::string_view end) {
  const Nesting nesting(depth_, tokens_.line());
  ExpressionPtr tuple = MakeNode(ExpressionKind::kTuple, tokens_.line());
  bool is_tuple = false;
  do {
    if (is_tuple && (IsTupleEnd(end) || tokens_.IsOperator("="))) break;
    tuple->children.push_back(TargetItem(end.empty()));
    is_tuple |= tokens_.IsOperator(",");
  } while (tokens_.SkipOperator(","));
  return is_tuple ? std::move(tuple) : std::move(tuple->children.front());
}

}  // namespace spillway::jinja
