#include "src/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "src/jinja/expression_parser.h"
#include "src/jinja/lexer.h"
#include "src/jinja/values/fault.h"

namespace spillway::jinja {
namespace {

constexpr int kMaxBlocks = 60;  // of statements in one another

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(Lex(source)), expressions_(tokens_) {}

  ParsedTemplate Run() {
    ParsedTemplate parsed;
    parsed.body = Body({});
    RefuseUnknownGlobals();
    return parsed;
  }

 private:
  using Ends = std::initializer_list<std::string_view>;

  Statement Make(StatementKind kind) const {
    Statement statement;
    statement.kind = kind;
    statement.line = tokens_.line();
    return statement;
  }

  // Statements up to one of `ends`, which stays; no ends: up to the end of the template.
  Block Body(Ends ends) {
    if (++depth_ > kMaxBlocks)
      throw Fault(fmt::format("statements nest deeper than {} levels", kMaxBlocks), tokens_.line());
    Block body;
    while (!tokens_.Is(TokenKind::kEnd)) {
      if (tokens_.Is(TokenKind::kData)) {
        Statement text = Make(StatementKind::kText);
        text.text = tokens_.Take().text;
        body.push_back(std::move(text));
      } else if (tokens_.Is(TokenKind::kVariableBegin)) {
        body.push_back(Output());
      } else {
        tokens_.Expect(TokenKind::kBlockBegin, "a statement");
        if (std::ranges::any_of(ends, [&](auto end) { return tokens_.IsName(end); })) {
          --depth_;
          return body;
        }
        body.push_back(Tag(ends));
      }
    }
    if (ends.size() > 0)
      throw Fault(fmt::format("the template ends before '{}'", *ends.begin()), tokens_.line());
    --depth_;
    return body;
  }

  // Body up to `end`, which is passed.
  Block BodyTo(std::string_view end) {
    tokens_.Expect(TokenKind::kBlockEnd, "the end of the statement");
    Block body = Body({end});
    EndTag();
    return body;
  }

  // BodyTo of a block that no break leaves.
  Block InnerBody(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Block body = BodyTo(end);
    loops_ = loops;
    return body;
  }

  // Passes a name and the end of its tag.
  void EndTag() {
    tokens_.Take();
    tokens_.Expect(TokenKind::kBlockEnd, "the end of the statement");
  }

  Statement Output() {
    Statement output = Make(StatementKind::kOutput);
    tokens_.Take();
    output.value = expressions_.Tuple(TupleParts::kAll);
    tokens_.Expect(TokenKind::kVariableEnd, "the end of the print statement");
    return output;
  }

  Statement Tag(Ends ends) {
    struct Known {
      std::string_view name;
      Statement (Parser::*read)();
    };
    static constexpr std::array kKnown = {
        Known{"for", &Parser::For},        Known{"if", &Parser::If},
        Known{"set", &Parser::Set},        Known{"macro", &Parser::Macro},
        Known{"call", &Parser::CallBlock}, Known{"filter", &Parser::FilterBlock},
        Known{"with", &Parser::With},      Known{"generation", &Parser::Generation},
        Known{"break", &Parser::Break},    Known{"continue", &Parser::Continue},
        Known{"print", &Parser::Print}};
    const int line = tokens_.line();
    const std::string name = tokens_.Is(TokenKind::kName) ? tokens_.now().text : "";
    const auto found = std::ranges::find(kKnown, name, &Known::name);
    if (found != kKnown.end()) return (this->*found->read)();
    if (name.empty()) throw Fault("a statement has no name", line);
    if (name.starts_with("end") || name == "else" || name == "elif") {
      throw Fault(ends.size() == 0 ? fmt::format("'{}' ends nothing", name)
                                   : fmt::format("'{}' stands where '{}' is expected", name,
                                                 fmt::join(ends, "' or '")),
                  line);
    }
    throw Fault(fmt::format("the statement '{}' is not supported", name), line);
  }

  Statement For() {
    Statement loop = Make(StatementKind::kFor);
    tokens_.Take();
    loop.target = expressions_.Target("in");
    tokens_.ExpectName("in");
    loop.value = expressions_.Tuple(TupleParts::kNoConditions, "recursive");
    if (tokens_.SkipName("if")) loop.condition = expressions_.Expression();
    if (tokens_.IsName("recursive"))
      throw Fault("a recursive for is not supported", tokens_.line());
    tokens_.Expect(TokenKind::kBlockEnd, "the end of the statement");
    ++loops_;
    loop.body = Body({"endfor", "else"});
    --loops_;
    if (!tokens_.IsName("else")) {
      EndTag();
      return loop;
    }
    tokens_.Take();
    loop.otherwise = BodyTo("endfor");
    return loop;
  }

  // Reads all of it, each {% elif %} as an if inside the else.
  Statement If() {
    Statement choice = Make(StatementKind::kIf);
    tokens_.Take();
    choice.value = expressions_.Tuple(TupleParts::kNoConditions);
    tokens_.Expect(TokenKind::kBlockEnd, "the end of the statement");
    choice.body = Body({"endif", "else", "elif"});
    Statement* last = &choice;
    while (tokens_.IsName("elif")) {
      Statement other = Make(StatementKind::kIf);
      tokens_.Take();
      other.value = expressions_.Tuple(TupleParts::kNoConditions);
      tokens_.Expect(TokenKind::kBlockEnd, "the end of the statement");
      other.body = Body({"endif", "else", "elif"});
      last->otherwise.push_back(std::move(other));
      last = &last->otherwise.front();
      if (++num_elifs_ > kMaxElifs) throw Fault("has too many elif", tokens_.line());
    }
    if (tokens_.SkipName("else")) {
      last->otherwise = BodyTo("endif");
    } else {
      EndTag();
    }
    return choice;
  }

  Statement Set() {
    Statement set = Make(StatementKind::kSet);
    tokens_.Take();
    set.target = expressions_.Target("");
    if (tokens_.SkipOperator("=")) {
      set.value = expressions_.Tuple(TupleParts::kAll);
      tokens_.Expect(TokenKind::kBlockEnd, "the end of the statement");
      return set;
    }
    set.kind = StatementKind::kSetBlock;
    if (set.target->kind == ExpressionKind::kTuple)
      throw Fault("a block is set to several names", set.line);
    if (tokens_.SkipOperator("|")) set.value = expressions_.FiltersOfBlock();
    set.body = InnerBody("endset");
    return set;
  }

  std::vector<Parameter> Parameters() {
    std::vector<Parameter> parameters;
    tokens_.ExpectOperator("(");
    while (!tokens_.IsOperator(")")) {
      if (!parameters.empty()) tokens_.ExpectOperator(",");
      Parameter& parameter = parameters.emplace_back();
      parameter.name = tokens_.ExpectName();
      expressions_.AddSetName(parameter.name);
      if (tokens_.SkipOperator("=")) {
        parameter.fallback = expressions_.Expression();
      } else if (parameters.size() > 1 && parameters[parameters.size() - 2].fallback) {
        throw Fault("a parameter without a default follows one with a default", tokens_.line());
      }
    }
    tokens_.ExpectOperator(")");
    return parameters;
  }

  // Reads the body of a macro or caller, and notes what it uses.
  void MacroBody(Statement& macro, std::string_view end) {
    const std::size_t first = expressions_.names_read().size();
    macro.body = InnerBody(end);
    const auto& names = expressions_.names_read();
    const auto uses = [&](std::string_view name) {
      return std::any_of(names.begin() + static_cast<std::ptrdiff_t>(first), names.end(),
                         [&](const ReadName& read) { return read.name == name; });
    };
    macro.uses_caller = uses("caller");
    macro.uses_varargs = uses("varargs");
    macro.uses_kwargs = uses("kwargs");
  }

  Statement Macro() {
    Statement macro = Make(StatementKind::kMacro);
    tokens_.Take();
    macro.text = tokens_.ExpectName();
    expressions_.AddSetName(macro.text);
    macro.parameters = Parameters();
    MacroBody(macro, "endmacro");
    return macro;
  }

  Statement CallBlock() {
    Statement call = Make(StatementKind::kCallBlock);
    tokens_.Take();
    if (tokens_.IsOperator("(")) call.parameters = Parameters();
    call.value = expressions_.Unary();
    if (call.value->kind != ExpressionKind::kCall) throw Fault("expected a call", call.line);
    call.text = "caller";
    MacroBody(call, "endcall");
    return call;
  }

  Statement FilterBlock() {
    Statement filter = Make(StatementKind::kFilterBlock);
    tokens_.Take();
    filter.value = expressions_.FiltersOfBlock();
    filter.body = InnerBody("endfilter");
    return filter;
  }

  Statement With() {
    Statement with = Make(StatementKind::kWith);
    tokens_.Take();
    while (!tokens_.Is(TokenKind::kBlockEnd)) {
      if (!with.assignments.empty()) tokens_.ExpectOperator(",");
      ExpressionPtr target = expressions_.Target("=");
      tokens_.ExpectOperator("=");
      with.assignments.emplace_back(std::move(target), expressions_.Expression());
    }
    with.body = BodyTo("endwith");
    return with;
  }

  // Marks what an assistant said, for training; the text is as it is.
  Statement Generation() {
    Statement scope = Make(StatementKind::kScope);
    tokens_.Take();
    scope.body = InnerBody("endgeneration");
    return scope;
  }

  Statement Print() {
    Statement all = Make(StatementKind::kScope);
    tokens_.Take();
    do {
      Statement& output = all.body.emplace_back(Make(StatementKind::kOutput));
      output.value = expressions_.Expression();
    } while (tokens_.SkipOperator(","));
    tokens_.Expect(TokenKind::kBlockEnd, "the end of the statement");
    return all;
  }

  Statement Break() { return LoopControl(StatementKind::kBreak); }
  Statement Continue() { return LoopControl(StatementKind::kContinue); }

  Statement LoopControl(StatementKind kind) {
    Statement control = Make(kind);
    if (loops_ == 0)
      throw Fault(fmt::format("'{}' outside a loop", tokens_.now().text), control.line);
    EndTag();
    return control;
  }

  // Functions of jinja2 that a template could take for granted.
  void RefuseUnknownGlobals() const {
    const std::vector<std::string>& set = expressions_.names_set();
    for (const char* name : {"lipsum", "cycler", "joiner"}) {
      const auto read = std::ranges::find(expressions_.names_read(), name, &ReadName::name);
      if (read == expressions_.names_read().end()) continue;
      if (std::ranges::find(set, name) == set.end())
        throw Fault(fmt::format("the function '{}' is not supported", name), read->line);
    }
  }

  static constexpr int kMaxElifs = 1000;

  TokenStream tokens_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loops_ = 0;
  int num_elifs_ = 0;
};

}  // namespace

ParsedTemplate Parse(std::string_view source) { return Parser(source).Run(); }

}  // namespace spillway::jinja
