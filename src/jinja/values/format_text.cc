#include "src/jinja/values/format_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "src/jinja/values/fault.h"
#include "src/jinja/values/operators.h"
#include "src/jinja/values/print.h"
#include "src/jinja/values/python_text.h"
#include "src/jinja/values/text_builder.h"

namespace spillway::jinja {
namespace {

// "%-05.2f" taken apart.
struct Directive {
  std::string name;  // of %(name)s
  bool left = false;
  bool zero = false;
  bool sign = false;
  bool space = false;
  int width = 0;
  int precision = -1;
  char type = 's';
};

class PercentFormatter {
 public:
  PercentFormatter(std::string_view format, const Value& values) : rest_(format), values_(values) {}

  std::string Run() {
    SpendOnText(rest_.size());
    while (!rest_.empty()) {
      const std::size_t mark = std::min(rest_.find('%'), rest_.size());
      out_.Add(rest_.substr(0, mark));
      rest_.remove_prefix(mark);
      if (!rest_.empty()) AddDirective();
    }
    const Sequence* tuple = Tuple();
    const std::size_t given = tuple != nullptr ? tuple->items.size() : values_.AsDict() ? 0 : 1;
    if (next_ < given) throw Fault("not all arguments converted during string formatting");
    return out_.Take();
  }

 private:
  const Sequence* Tuple() const {
    const Sequence* tuple = values_.AsSequence();
    return tuple != nullptr && tuple->kind == SequenceKind::kTuple ? tuple : nullptr;
  }

  char Take() {
    if (rest_.empty()) throw Fault("incomplete format");
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }

  int Number() {
    int number = 0;
    while (!rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9') {
      number = number * 10 + (Take() - '0');
      if (number > 10000) throw Fault("a format is too wide");
    }
    return number;
  }

  Directive Read() {
    Directive directive;
    Take();
    if (rest_.starts_with('(')) {
      const std::size_t end = rest_.find(')');
      if (end == std::string_view::npos) throw Fault("incomplete format key");
      directive.name = rest_.substr(1, end - 1);
      rest_.remove_prefix(end + 1);
    }
    for (;
         !rest_.empty() && std::string_view("-0+ #").find(rest_.front()) != std::string_view::npos;
         Take()) {
      directive.left |= rest_.front() == '-';
      directive.zero |= rest_.front() == '0';
      directive.sign |= rest_.front() == '+';
      directive.space |= rest_.front() == ' ';
    }
    directive.width = Number();
    if (rest_.starts_with('.')) {
      Take();
      directive.precision = Number();
    }
    directive.type = Take();
    return directive;
  }

  const Value& NextValue(const Directive& directive) {
    if (!directive.name.empty()) {
      const Dict* dict = values_.AsDict();
      if (dict == nullptr) throw Fault("format requires a mapping");
      const Value* found = dict->Find(std::string_view(directive.name));
      if (found == nullptr)
        throw Fault(fmt::format("the format has no value '{}'", directive.name));
      return *found;
    }
    if (const Sequence* tuple = Tuple()) {
      if (next_ >= tuple->items.size()) throw Fault("not enough arguments for format string");
      return tuple->items[next_++];
    }
    if (next_++ > 0) throw Fault("not enough arguments for format string");
    return values_;
  }

  static std::string Signed(const Directive& directive, bool negative, std::string digits) {
    const std::string sign = negative ? "-" : directive.sign ? "+" : directive.space ? " " : "";
    if (directive.zero && !directive.left) {
      const auto used = sign.size() + digits.size();
      const auto width = static_cast<std::size_t>(directive.width);
      if (used < width) digits.insert(0, width - used, '0');
    }
    return sign + digits;
  }

  static std::string Converted(const Directive& directive, const Value& value) {
    if (directive.type == 's' || directive.type == 'r') {
      std::string text = directive.type == 's' ? Str(value) : Repr(value);
      if (directive.precision < 0) return text;
      return *SliceOf(Value(text), {std::nullopt, Integer{directive.precision}, std::nullopt})
                  .AsText();
    }
    const auto number = value.AsNumber();
    if (!number)
      throw Fault(
          fmt::format("%{} format: a number is required, not {}", directive.type, TypeName(value)));
    if (directive.type == 'f') {
      const int precision = directive.precision < 0 ? 6 : directive.precision;
      return Signed(directive, std::signbit(*number),
                    fmt::format("{:.{}f}", std::abs(*number), precision));
    }
    if (!value.AsInteger() && std::abs(*number) > 1e18) throw Fault("a number is out of range");
    const Integer integer = value.AsInteger().value_or(static_cast<Integer>(*number));
    const Integer size = integer < 0 ? -integer : integer;
    return Signed(directive, integer < 0,
                  directive.type == 'x' ? fmt::format("{:x}", size) : fmt::format("{}", size));
  }

  void AddDirective() {
    Spend(2);
    const Directive directive = Read();
    if (directive.type == '%') {
      out_.Add('%');
      return;
    }
    if (std::string_view("srdifx").find(directive.type) == std::string_view::npos)
      throw Fault(fmt::format("the format %{} is not supported", directive.type));
    const std::string text = Converted(directive, NextValue(directive));
    const std::size_t points = NumCodePoints(text);
    const auto width = static_cast<std::size_t>(directive.width);
    const std::string padding(points < width ? width - points : 0, ' ');
    if (!directive.left) out_.Add(padding);
    out_.Add(text);
    if (directive.left) out_.Add(padding);
  }

  std::string_view rest_;
  const Value& values_;
  std::size_t next_ = 0;
  TextBuilder out_;
};

// Field "{0.name!r}" of str.format.
class FieldFormatter {
 public:
  FieldFormatter(std::string_view format, const Arguments& arguments)
      : rest_(format), arguments_(arguments) {}

  std::string Run() {
    SpendOnText(rest_.size());
    while (!rest_.empty()) {
      const char c = rest_.front();
      const bool doubled = rest_.size() > 1 && rest_[1] == c;
      if ((c == '{' || c == '}') && doubled) {
        out_.Add(c);
        rest_.remove_prefix(2);
      } else if (c == '}') {
        throw Fault("single '}' encountered in format string");
      } else if (c == '{') {
        AddField();
      } else {
        out_.Add(c);
        rest_.remove_prefix(1);
      }
    }
    return out_.Take();
  }

 private:
  void AddField() {
    Spend(1 + arguments_.named.size() / 16);
    const std::size_t end = rest_.find('}');
    if (end == std::string_view::npos) throw Fault("expected '}' before end of string");
    std::string_view field = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    if (field.find_first_of(":{") != std::string_view::npos)
      throw Fault(fmt::format("the format specification '{{{}}}' is not supported", field));
    const bool is_repr = field.ends_with("!r");
    if (is_repr || field.ends_with("!s")) field.remove_suffix(2);
    const Value value = ValueOf(field);
    out_.Add(is_repr ? Repr(value) : Str(value));
  }

  Value ValueOf(std::string_view field) {
    const std::size_t dot = std::min(field.find('.'), field.size());
    Value value = Argument(field.substr(0, dot));
    field.remove_prefix(dot);
    while (!field.empty()) {
      field.remove_prefix(1);
      const std::size_t next = std::min(field.find('.'), field.size());
      value = AttributeOf(value, std::string(field.substr(0, next)));
      field.remove_prefix(next);
    }
    return value;
  }

  Value Argument(std::string_view name) {
    const bool is_number = name.find_first_not_of("0123456789") == std::string_view::npos;
    if (is_number && name.size() < 6) {
      const std::size_t place = name.empty() ? next_++ : std::stoul(std::string(name));
      if (place < arguments_.given.size()) return arguments_.given[place];
      throw Fault(
          fmt::format("replacement index {} out of range for positional args tuple", place));
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    throw Fault(fmt::format("the format has no value '{}'", name));
  }

  std::string_view rest_;
  const Arguments& arguments_;
  std::size_t next_ = 0;
  TextBuilder out_;
};

}  // namespace

Value FormatPercent(const Value& format, const Value& values) {
  return PercentFormatter(*format.AsText(), values).Run();
}

Value FormatFields(std::string_view format, const Arguments& arguments) {
  return FieldFormatter(format, arguments).Run();
}

}  // namespace spillway::jinja
