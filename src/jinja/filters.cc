#include "src/jinja/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "src/jinja/values/fault.h"
#include "src/jinja/values/format_text.h"
#include "src/jinja/values/number_text.h"
#include "src/jinja/values/operators.h"
#include "src/jinja/values/print.h"
#include "src/jinja/values/python_text.h"
#include "src/jinja/values/text_builder.h"
#include "src/unicode/utf8.h"

namespace spillway::jinja {
namespace {

Value TrimFilter(const FilterCall& call) {
  const BoundArguments bound = call.Bind({"chars"});
  return Strip(Shown(call.value).text(), bound.FindText(0), Side::kBoth);
}

template <std::string (*kChange)(std::string_view)>
Value ChangeFilter(const FilterCall& call) {
  call.Bind({});
  return kChange(Shown(call.value).text());
}

// The filter, unlike str.title, begins a word after any of these, and nowhere else.
std::string TitleWords(std::string_view text) {
  Spend(1 + text.size() / 4);
  TextBuilder out;
  bool begins = true;
  std::string word;
  const auto flush = [&] {
    if (!word.empty()) {
      const std::size_t first = CodePointAt(word, 0).bytes;
      out.Add(Upper(word.substr(0, first)));
      out.Add(Lower(word.substr(first)));
    }
    word.clear();
  };
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    const bool splits =
        IsPythonSpace(c.value) ||
        (c.value < 0x80 &&
         std::string_view("-({[<").find(static_cast<char>(c.value)) != std::string_view::npos);
    if (splits != begins) flush();
    begins = splits;
    word += text.substr(at, c.bytes);
    at += c.bytes;
  }
  flush();
  return out.Take();
}

Value JsonFilter(const FilterCall& call) {
  const BoundArguments bound = call.Bind({"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.Flag(0, false);
  style.sort_keys = bound.Flag(3, false);
  if (const Value* indent = bound.Find(1); indent != nullptr && !indent->Is<None>()) {
    const std::string* text = indent->AsText();
    style.indent = text != nullptr ? *text : Repeat(" ", bound.Int(1, 0));
    style.item_separator.resize(1);  // the lines say the rest
  }
  if (const Value* pair = bound.Find(2); pair != nullptr && !pair->Is<None>()) {
    const Values parts = ItemsOf(*pair);
    if (parts.size() != 2 || !parts[0].AsText() || !parts[1].AsText())
      throw Fault("tojson: 'separators' must be two texts");
    style.item_separator = *parts[0].AsText();
    style.key_separator = *parts[1].AsText();
  }
  return ToJson(call.value, style);
}

Value DefaultFilter(const FilterCall& call) {
  const BoundArguments bound = call.Bind({"default_value", "boolean"});
  const bool gives_way =
      call.value.Is<Undefined>() || (bound.Flag(1, false) && !call.value.IsTrue());
  if (!gives_way) return call.value;
  return bound.Has(0) ? bound.At(0) : Value("");
}

Value ReplaceFilter(const FilterCall& call) {
  const BoundArguments bound = call.Bind({"old", "new", "count"});
  return Replace(Shown(call.value).text(), Shown(bound.At(0)).text(), Shown(bound.At(1)).text(),
                 bound.Int(2, -1));
}

Value StringFilter(const FilterCall& call) {
  call.Bind({});
  return call.value.Is<Text>() ? call.value : Value(Str(call.value));
}

Value SafeFilter(const FilterCall& call) {
  call.Bind({});
  return MakeMarkup(Shown(call.value).text());
}

Value EscapeFilter(const FilterCall& call) {
  call.Bind({});
  const auto* text = call.value.As<Text>();
  return text != nullptr && text->is_markup ? call.value
                                            : MakeMarkup(EscapeMarkup(Shown(call.value).text()));
}

std::optional<Integer> Truncated(double value) {
  if (!std::isfinite(value) || std::abs(value) > 1e37) return std::nullopt;
  return static_cast<Integer>(value);
}

Value IntFilter(const FilterCall& call) {
  const BoundArguments bound = call.Bind({"default", "base"});
  if (bound.Int(1, 10) != 10) throw Fault("int: a base other than 10 is not supported");
  const Value fallback = bound.Has(0) ? bound.At(0) : Value(0);
  std::optional<Integer> integer = call.value.AsInteger();
  if (const auto* real = call.value.As<double>()) integer = Truncated(*real);
  if (const std::string* text = call.value.AsText()) {
    integer = ReadInteger(*text);
    if (const auto read = integer ? std::nullopt : ReadReal(*text)) integer = Truncated(*read);
  }
  RefuseUndefined(call.value);
  return integer ? Value(*integer) : fallback;
}

Value FloatFilter(const FilterCall& call) {
  const BoundArguments bound = call.Bind({"default"});
  RefuseUndefined(call.value);
  std::optional<double> real = call.value.AsNumber();
  if (const std::string* text = call.value.AsText()) real = ReadReal(*text);
  if (real) return *real;
  return bound.Has(0) ? bound.At(0) : Value(0.0);
}

Value AbsFilter(const FilterCall& call) {
  call.Bind({});
  const auto number = call.value.AsNumber();
  if (number && *number < 0.0) return Negated(call.value);
  if (number) return call.value.Is<bool>() ? Value(*call.value.AsInteger()) : call.value;
  RefuseUndefined(call.value);
  throw Fault(fmt::format("bad operand type for abs(): '{}'", TypeName(call.value)));
}

Value RoundFilter(const FilterCall& call) {
  const BoundArguments bound = call.Bind({"precision", "method"});
  const long precision = bound.Int(0, 0);
  const std::string method = bound.TextOr(1, "common");
  const auto number = call.value.AsNumber();
  if (!number)
    throw Fault(fmt::format("round: a number is required, not {}", TypeName(call.value)));
  if (precision < 0 || precision > 300) throw Fault("round: 'precision' is out of range");
  if (method == "common") {
    if (call.value.AsInteger()) return *call.value.AsInteger();
    if (!std::isfinite(*number)) return *number;
    return std::stod(fmt::format("{:.{}f}", *number, precision));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(*number * scale) / scale;
  if (method == "floor") return std::floor(*number * scale) / scale;
  throw Fault("round: 'method' must be common, ceil or floor");
}

Value IndentFilter(const FilterCall& call) {
  const BoundArguments bound = call.Bind({"width", "first", "blank"});
  const Value* width = bound.Find(0);
  const std::string margin =
      width != nullptr && width->AsText() ? *width->AsText() : Repeat(" ", bound.Int(0, 4));
  const bool indents_blank = bound.Flag(2, false);
  // A newline at the end stays: it opens a last, empty line.
  const std::string text = Str(call.value) + "\n";
  const Parts lines = SplitLines(text, false);
  TextBuilder out;
  if (bound.Flag(1, false)) out.Add(margin);
  for (std::size_t line = 0; line < lines.size(); ++line) {
    if (line > 0) out.Add('\n');
    if (line > 0 && (indents_blank || !lines[line].empty())) out.Add(margin);
    out.Add(lines[line]);
  }
  return out.Take();
}

Value CenterFilter(const FilterCall& call) {
  const BoundArguments bound = call.Bind({"width"});
  const Shown shown(call.value);
  const long width = bound.Int(0, 80);
  const long missing = width - static_cast<long>(NumCodePoints(shown.text()));
  if (missing <= 0) return shown.text();
  const long left = missing / 2 + (missing & width & 1);
  TextBuilder out;
  out.Add(static_cast<std::size_t>(left), " ");
  out.Add(shown.text());
  out.Add(static_cast<std::size_t>(missing - left), " ");
  return out.Take();
}

Value FormatFilter(const FilterCall& call) {
  if (!call.arguments.named.empty() && !call.arguments.given.empty())
    throw Fault("format takes positional or keyword arguments, not both");
  const Value format = Str(call.value);
  if (call.arguments.named.empty()) return FormatPercent(format, MakeTuple(call.arguments.given));
  auto dict = MakeShared<Dict>();
  for (const auto& [name, value] : call.arguments.named) dict->Set(name, value);
  return FormatPercent(format, DictPtr(std::move(dict)));
}

Value TruncateFilter(const FilterCall& call) {
  const BoundArguments bound = call.Bind({"length", "killwords", "end", "leeway"});
  const Value text = Str(call.value);
  const std::string end = bound.TextOr(2, "...");
  const long length = bound.Int(0, 255);
  const auto end_size = static_cast<long>(NumCodePoints(end));
  if (length < end_size) throw Fault("truncate: 'length' is shorter than 'end'");
  if (static_cast<long>(LengthOf(text)) <= length + bound.Int(3, 5)) return text;
  const Value cut = SliceOf(text, {std::nullopt, Integer{length - end_size}, std::nullopt});
  if (bound.Flag(1, false)) return *cut.AsText() + end;
  return std::string(SplitAtRight(*cut.AsText(), " ", 1).front()) + end;
}

Value AttributeFilter(const FilterCall& call) {
  const BoundArguments bound = call.Bind({"name"});
  RefuseUndefined(call.value);
  if (const auto* space = call.value.As<NamespacePtr>()) {
    const Value* found = (*space)->Find(bound.TextAt(0));
    if (found != nullptr) return *found;
  }
  return MakeUndefined(
      fmt::format("'{}' has no attribute '{}'", ObjectName(call.value), bound.TextAt(0)));
}

struct Named {
  std::string_view name;
  FilterFunction function;
};

constexpr std::array kFilters = {
    Named{"abs", AbsFilter},
    Named{"attr", AttributeFilter},
    Named{"capitalize", ChangeFilter<Capitalize>},
    Named{"center", CenterFilter},
    Named{"d", DefaultFilter},
    Named{"default", DefaultFilter},
    Named{"e", EscapeFilter},
    Named{"escape", EscapeFilter},
    Named{"float", FloatFilter},
    Named{"format", FormatFilter},
    Named{"indent", IndentFilter},
    Named{"int", IntFilter},
    Named{"lower", ChangeFilter<Lower>},
    Named{"replace", ReplaceFilter},
    Named{"round", RoundFilter},
    Named{"safe", SafeFilter},
    Named{"string", StringFilter},
    Named{"title", ChangeFilter<TitleWords>},
    Named{"tojson", JsonFilter},
    Named{"trim", TrimFilter},
    Named{"truncate", TruncateFilter},
    Named{"upper", ChangeFilter<Upper>},
};

FilterFunction FindFilter(std::string_view name) {
  if (const FilterFunction function = FindTextFilter(name)) return function;
  return FindSequenceFilter(name);
}

}  // namespace

FilterFunction FindTextFilter(std::string_view name) {
  const auto found = std::ranges::find(kFilters, name, &Named::name);
  return found == kFilters.end() ? nullptr : found->function;
}

bool IsFilter(std::string_view name) { return FindFilter(name) != nullptr; }

Value FilterValue(std::string_view name, const Value& value, const Arguments& arguments,
                  Runtime& runtime) {
  const FilterFunction function = FindFilter(name);
  if (function == nullptr) throw Fault(fmt::format("the filter '{}' is not supported", name));
  return function({name, value, arguments, runtime});
}

}  // namespace spillway::jinja
