#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "src/jinja/values/fault.h"
#include "src/jinja/values/format_text.h"
#include "src/jinja/values/methods.h"
#include "src/jinja/values/operators.h"
#include "src/jinja/values/print.h"
#include "src/jinja/values/python_text.h"
#include "src/jinja/values/text_builder.h"
#include "src/unicode/utf8.h"

namespace spillway::jinja {
namespace {

struct Call {
  const std::string& text;
  std::string_view name;
  const Arguments& arguments;

  BoundArguments Bind(std::initializer_list<std::string_view> names) const {
    return {name, arguments, names};
  }
};

Value ListOf(const Parts& texts) { return MakeList({texts.begin(), texts.end()}); }

Value StripText(const Call& call) {
  const BoundArguments bound = call.Bind({"chars"});
  const Side side = call.name == "lstrip"   ? Side::kLeft
                    : call.name == "rstrip" ? Side::kRight
                                            : Side::kBoth;
  return Strip(call.text, bound.FindText(0), side);
}

Value SplitText(const Call& call) {
  const BoundArguments bound = call.Bind({"sep", "maxsplit"});
  const std::string* separator = bound.FindText(0);
  const long max_splits = bound.Int(1, -1);
  if (separator != nullptr && separator->empty()) throw Fault("empty separator");
  const bool from_right = call.name == "rsplit";
  if (separator == nullptr)
    return ListOf(from_right ? SplitSpaceRight(call.text, max_splits)
                             : SplitSpace(call.text, max_splits));
  return ListOf(from_right ? SplitAtRight(call.text, *separator, max_splits)
                           : SplitAt(call.text, *separator, max_splits));
}

Value SplitTextLines(const Call& call) {
  const BoundArguments bound = call.Bind({"keepends"});
  return ListOf(SplitLines(call.text, bound.Flag(0, false)));
}

Value Partition(const Call& call) {
  const BoundArguments bound = call.Bind({"sep"});
  const std::string& separator = bound.TextAt(0);
  if (separator.empty()) throw Fault("empty separator");
  const bool from_right = call.name == "rpartition";
  const std::size_t at =
      from_right ? FindLast(call.text, separator) : FindFirst(call.text, separator);
  if (at == std::string::npos)
    return from_right ? MakeTuple({"", "", call.text}) : MakeTuple({call.text, "", ""});
  const std::string_view text = call.text;
  return MakeTuple({text.substr(0, at), separator, text.substr(at + separator.size())});
}

// Text between two places that count code points, as Python's slices do.
std::string_view Part(const Call& call, const BoundArguments& bound) {
  SliceBounds bounds;
  if (bound.Has(1)) bounds.start = bound.Int(1, 0);
  if (bound.Has(2) && !bound.At(2).Is<None>()) bounds.stop = bound.Int(2, 0);
  if (!bounds.start && !bounds.stop) return call.text;
  return SliceOfText(call.text, bounds);
}

Value HasEnd(const Call& call) {
  const BoundArguments bound = call.Bind({"prefix", "start", "end"});
  const std::string_view part = Part(call, bound);
  const auto fits = [&](const std::string& end) {
    SpendOnText(end.size());
    return call.name == "startswith" ? part.starts_with(end) : part.ends_with(end);
  };
  const Sequence* tuple = bound.At(0).AsSequence();
  if (tuple == nullptr || tuple->kind != SequenceKind::kTuple) return fits(bound.TextAt(0));
  return std::ranges::any_of(tuple->items, [&](const Value& item) {
    return item.AsText() != nullptr && fits(*item.AsText());
  });
}

// Place in code points of the first or last match from `start` on.
Value FindText(const Call& call) {
  const BoundArguments bound = call.Bind({"sub", "start", "end"});
  const std::string_view part = Part(call, bound);
  const bool from_right = call.name == "rfind" || call.name == "rindex";
  const std::string& wanted = bound.TextAt(0);
  const std::size_t at = from_right ? FindLast(part, wanted) : FindFirst(part, wanted);
  if (at == std::string::npos) {
    if (call.name == "index" || call.name == "rindex") throw Fault("substring not found");
    return -1;
  }
  const auto size = static_cast<long>(NumCodePoints(call.text));
  const long start = bound.Int(1, 0);
  const long offset = std::clamp<long>(start < 0 ? start + size : start, 0, size);
  return static_cast<int64_t>(offset) + static_cast<int64_t>(NumCodePoints(part.substr(0, at)));
}

Value CountText(const Call& call) {
  const BoundArguments bound = call.Bind({"sub", "start", "end"});
  const std::string_view part = Part(call, bound);
  const std::string& wanted = bound.TextAt(0);
  if (wanted.empty()) return NumCodePoints(part) + 1;
  return SplitAt(part, wanted, -1).size() - 1;
}

Value ReplaceText(const Call& call) {
  const BoundArguments bound = call.Bind({"old", "new", "count"});
  return Replace(call.text, bound.TextAt(0), bound.TextAt(1), bound.Int(2, -1));
}

Value JoinTexts(const Call& call) {
  const BoundArguments bound = call.Bind({"iterable"});
  TextBuilder out;
  bool first = true;
  for (const Value& item : ItemsOf(bound.At(0))) {
    const std::string* text = item.AsText();
    if (text == nullptr)
      throw Fault(fmt::format("join: expected str instance, {} found", TypeName(item)));
    if (!first) out.Add(call.text);
    first = false;
    out.Add(*text);
  }
  return out.Take();
}

Value RemoveEnd(const Call& call) {
  const BoundArguments bound = call.Bind({"affix"});
  const std::string& affix = bound.TextAt(0);
  std::string_view text = call.text;
  SpendOnText(affix.size());
  if (call.name == "removeprefix") {
    if (text.starts_with(affix)) text.remove_prefix(affix.size());
  } else if (text.ends_with(affix)) {
    text.remove_suffix(affix.size());
  }
  return text;
}

// ljust, rjust, center, zfill.
Value Pad(const Call& call) {
  const BoundArguments bound = call.Bind({"width", "fillchar"});
  const long width = bound.Int(0, 0);
  const std::string fill = call.name == "zfill" ? "0" : bound.TextOr(1, " ");
  const long missing = width - static_cast<long>(NumCodePoints(call.text));
  if (missing <= 0) return call.text;
  std::string_view text = call.text;
  TextBuilder out;
  if (call.name == "zfill" && (text.starts_with('-') || text.starts_with('+'))) {
    out.Add(text.front());
    text.remove_prefix(1);
  }
  const long left = call.name == "ljust"    ? 0
                    : call.name == "center" ? missing / 2 + (missing & width & 1)
                                            : missing;
  out.Add(static_cast<std::size_t>(left), fill);
  out.Add(text);
  out.Add(static_cast<std::size_t>(missing - left), fill);
  return out.Take();
}

template <std::string (*kChange)(std::string_view)>
Value Changed(const Call& call) {
  call.Bind({});
  return kChange(call.text);
}

template <bool (*kAsk)(std::string_view)>
Value Asked(const Call& call) {
  call.Bind({});
  return kAsk(call.text);
}

bool All(std::string_view text, bool (*is)(char32_t)) {
  Spend(1 + text.size() / 4);
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    if (!is(c.value)) return false;
    at += c.bytes;
  }
  return !text.empty();
}

bool IsAlpha(std::string_view text) { return All(text, IsAlphabetic); }
bool IsDigits(std::string_view text) { return All(text, IsDecimal); }
bool IsAlphaOrDigit(std::string_view text) {
  return All(text, [](char32_t c) { return IsAlphabetic(c) || IsDecimal(c); });
}
bool IsSpaces(std::string_view text) { return All(text, IsPythonSpace); }
bool IsAscii(std::string_view text) {
  return text.empty() || All(text, [](char32_t c) { return c < 0x80; });
}
bool IsPrintableText(std::string_view text) { return text.empty() || All(text, IsPrintable); }
bool IsTitled(std::string_view text) {
  return Title(text) == text && (Upper(text) != text || Lower(text) != text);
}

Value FormatText(const Call& call) { return FormatFields(call.text, call.arguments); }

struct Method {
  std::string_view name;
  Value (*call)(const Call&);
};

constexpr std::array kMethods = {
    Method{"capitalize", Changed<Capitalize>},
    Method{"casefold", Changed<Lower>},
    Method{"center", Pad},
    Method{"count", CountText},
    Method{"endswith", HasEnd},
    Method{"find", FindText},
    Method{"format", FormatText},
    Method{"index", FindText},
    Method{"isalnum", Asked<IsAlphaOrDigit>},
    Method{"isalpha", Asked<IsAlpha>},
    Method{"isascii", Asked<IsAscii>},
    Method{"isdecimal", Asked<IsDigits>},
    Method{"isdigit", Asked<IsDigits>},
    Method{"islower", Asked<IsLower>},
    Method{"isnumeric", Asked<IsDigits>},
    Method{"isprintable", Asked<IsPrintableText>},
    Method{"isspace", Asked<IsSpaces>},
    Method{"istitle", Asked<IsTitled>},
    Method{"isupper", Asked<IsUpper>},
    Method{"join", JoinTexts},
    Method{"ljust", Pad},
    Method{"lower", Changed<Lower>},
    Method{"lstrip", StripText},
    Method{"partition", Partition},
    Method{"removeprefix", RemoveEnd},
    Method{"removesuffix", RemoveEnd},
    Method{"replace", ReplaceText},
    Method{"rfind", FindText},
    Method{"rindex", FindText},
    Method{"rjust", Pad},
    Method{"rpartition", Partition},
    Method{"rsplit", SplitText},
    Method{"rstrip", StripText},
    Method{"split", SplitText},
    Method{"splitlines", SplitTextLines},
    Method{"startswith", HasEnd},
    Method{"strip", StripText},
    Method{"swapcase", Changed<SwapCase>},
    Method{"title", Changed<Title>},
    Method{"upper", Changed<Upper>},
    Method{"zfill", Pad},
};

const Method* FindMethod(std::string_view name) {
  const auto found = std::ranges::find(kMethods, name, &Method::name);
  return found == kMethods.end() ? nullptr : &*found;
}

}  // namespace

bool IsTextMethod(std::string_view name) { return FindMethod(name) != nullptr; }

Value CallTextMethod(const std::string& text, std::string_view name, const Arguments& arguments) {
  return FindMethod(name)->call({text, name, arguments});
}

}  // namespace spillway::jinja
