// ExpressionParser: the expressions of a template. Knows which filters, tests and methods there
// are, so that a template with another is refused before anything is rendered.
// Thread rule: one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/jinja/node.h"
#include "src/jinja/token_stream.h"

namespace spillway::jinja {

// Extent of a tuple's expressions: whether they may be `a if b else c`.
enum class TupleParts { kAll, kNoConditions };

// A name that an expression reads.
struct ReadName {
  std::string name;
  int line = 0;
};

class ExpressionParser {
 public:
  // Lifetime: the stream outlives the parser.
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  // All throw Fault with the line.
  ExpressionPtr Expression();
  // `a` or `a, b`. A name `end` ends it, where it is not empty.
  ExpressionPtr Tuple(TupleParts parts, std::string_view end = {});
  // Left side of a set or a for: names, and ns.name where `end` is empty.
  ExpressionPtr Target(std::string_view end);
  // `name|...` of a block: filters on the text that it captures. Requires: the name is next.
  ExpressionPtr FiltersOfBlock();
  // A primary expression with its subscripts and calls. For {% call %}.
  ExpressionPtr Unary();

  // Names that were read so far, in order.
  const std::vector<ReadName>& names_read() const { return names_read_; }
  const std::vector<std::string>& names_set() const { return names_set_; }
  void AddSetName(std::string name) { names_set_.push_back(std::move(name)); }

 private:
  class Nesting;

  ExpressionPtr Conditional();
  ExpressionPtr Or();
  ExpressionPtr And();
  ExpressionPtr Not();
  ExpressionPtr Compare();
  ExpressionPtr Sum();
  ExpressionPtr Concat();
  ExpressionPtr Product();
  ExpressionPtr Power();
  ExpressionPtr Signed();
  ExpressionPtr Primary();
  ExpressionPtr Name();
  ExpressionPtr Strings();
  ExpressionPtr Number();
  ExpressionPtr List();
  ExpressionPtr DictDisplay();
  ExpressionPtr Postfix(ExpressionPtr node);
  ExpressionPtr Subscript(ExpressionPtr node);
  ExpressionPtr Index();
  ExpressionPtr SliceRest(ExpressionPtr start);
  ExpressionPtr FilterOrTest(ExpressionPtr node);
  ExpressionPtr Filter(ExpressionPtr node);
  ExpressionPtr Test(ExpressionPtr node);
  ExpressionPtr Call(ExpressionPtr node);
  ArgumentNodes Arguments();
  void Argument(ArgumentNodes& arguments);
  ExpressionPtr TargetItem(bool takes_members);
  bool IsTupleEnd(std::string_view end) const;
  bool OpensTestArgument() const;

  TokenStream& tokens_;
  int depth_ = 0;
  std::vector<ReadName> names_read_;
  std::vector<std::string> names_set_;
};

}  // namespace spillway::jinja
