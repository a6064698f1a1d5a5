// Helpers of the expression parser's files. Thread rule: one thread.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "src/jinja/expression_parser.h"
#include "src/jinja/values/fault.h"

namespace spillway::jinja {

inline constexpr int kMaxNesting = 150;  // of expressions in one another

inline ExpressionPtr MakeNode(ExpressionKind kind, int line) {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  return node;
}

inline ExpressionPtr Constant(Value value, int line) {
  ExpressionPtr node = MakeNode(ExpressionKind::kConstant, line);
  node->constant = std::move(value);
  return node;
}

// A node over `left`, and `right` where it is not null.
inline ExpressionPtr Over(ExpressionKind kind, int line, ExpressionPtr left,
                          ExpressionPtr right = {}) {
  ExpressionPtr node = MakeNode(kind, line);
  node->children.push_back(std::move(left));
  if (right) node->children.push_back(std::move(right));
  return node;
}

inline ExpressionPtr Binary(std::string name, int line, ExpressionPtr left, ExpressionPtr right) {
  ExpressionPtr node = Over(ExpressionKind::kBinary, line, std::move(left), std::move(right));
  node->name = std::move(name);
  return node;
}

// One level more. Throws: Fault: there are too many.
inline void Deepen(int& depth, int line) {
  if (++depth > kMaxNesting)
    throw Fault(fmt::format("expressions nest deeper than {} levels", kMaxNesting), line);
}

// Counts levels, so that no template overflows the stack.
class ExpressionParser::Nesting {
 public:
  Nesting(int& depth, int line) : depth_(depth) { Deepen(depth, line); }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  int& depth_;
};

}  // namespace spillway::jinja
