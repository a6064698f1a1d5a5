#include "src/jinja/values/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/jinja/values/fault.h"
#include "src/jinja/values/python_text.h"
#include "src/jinja/values/text_builder.h"
#include "src/unicode/utf8.h"

namespace spillway::jinja {
namespace {

std::string Escaped(char32_t c) {
  const auto code = static_cast<unsigned>(c);
  return code <= 0xFF     ? fmt::format("\\x{:02x}", code)
         : code <= 0xFFFF ? fmt::format("\\u{:04x}", code)
                          : fmt::format("\\U{:08x}", code);
}

std::string ReprText(std::string_view text) {
  SpendOnText(text.size());
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  TextBuilder out;
  out.Add(quote);
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    if (c.value == static_cast<char32_t>(quote) || c.value == '\\') {
      out.Add('\\');
      out.Add(static_cast<char>(c.value));
    } else if (c.value == '\n') {
      out.Add("\\n");
    } else if (c.value == '\r') {
      out.Add("\\r");
    } else if (c.value == '\t') {
      out.Add("\\t");
    } else if (IsPrintable(c.value)) {
      out.Add(text.substr(at, c.bytes));
    } else {
      out.Add(Escaped(c.value));
    }
    at += c.bytes;
  }
  out.Add(quote);
  return out.Take();
}

// Appends parts of a container, within the bounds of a text and of nesting: a namespace may hold
// itself.
class ReprWriter {
 public:
  std::string Take() { return out_.Take(); }

  void Add(const Value& value) {
    Spend(1);
    if (++depth_ > 2 * kMaxDepth) throw Fault("a value that holds itself is printed");
    if (const Sequence* sequence = value.AsSequence()) {
      AddSequence(*sequence);
    } else if (const Dict* dict = value.AsDict()) {
      AddDict(*dict);
    } else if (const auto* space = value.As<NamespacePtr>()) {
      AddNamespace(**space);
    } else {
      out_.Add(ReprOfScalar(value));
    }
    --depth_;
  }

 private:
  static std::string ReprOfScalar(const Value& value) {
    if (value.Is<Undefined>()) return "Undefined";
    if (const auto* text = value.As<Text>())
      return text->is_markup ? fmt::format("Markup({})", ReprText(*text->bytes))
                             : ReprText(*text->bytes);
    if (value.Is<CallablePtr>() || value.Is<LoopPtr>())
      throw Fault(
          fmt::format("a {} is printed, whose text differs from run to run", TypeName(value)));
    return Str(value);
  }

  void AddItems(const Values& items) {
    bool first = true;
    for (const Value& item : items) {
      if (!first) out_.Add(", ");
      first = false;
      Add(item);
    }
  }

  void AddSequence(const Sequence& sequence) {
    switch (sequence.kind) {
      case SequenceKind::kTuple:
        out_.Add('(');
        AddItems(sequence.items);
        out_.Add(sequence.items.size() == 1 ? ",)" : ")");
        return;
      case SequenceKind::kList:
        out_.Add('[');
        AddItems(sequence.items);
        out_.Add(']');
        return;
      case SequenceKind::kRange:
        throw Fault("a range is printed; give it to the list filter first");
      case SequenceKind::kGenerator:
        throw Fault(
            "a generator is printed, whose text differs from run to run; give it to the "
            "list filter first");
      default:
        out_.Add(sequence.kind == SequenceKind::kKeys     ? "dict_keys(["
                 : sequence.kind == SequenceKind::kValues ? "dict_values(["
                                                          : "dict_items([");
        AddItems(sequence.items);
        out_.Add("])");
    }
  }

  void AddDict(const Dict& dict) {
    out_.Add('{');
    bool first = true;
    for (const auto& [key, value] : dict.members) {
      if (!first) out_.Add(", ");
      first = false;
      Add(key);
      out_.Add(": ");
      Add(value);
    }
    out_.Add('}');
  }

  void AddNamespace(const Namespace& space) {
    out_.Add("<Namespace {");
    bool first = true;
    for (const auto& [name, value] : space.members) {
      if (!first) out_.Add(", ");
      first = false;
      out_.Add(ReprText(name) + ": ");
      Add(value);
    }
    out_.Add("}>");
  }

  TextBuilder out_;
  std::size_t depth_ = 0;
};

// The digits and exponent that read back as the same double, as Python arranges them.
std::string Arranged(std::string_view digits, int exponent) {
  const int num_digits = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}{}{}e{}{:02d}", digits.substr(0, 1), num_digits > 1 ? "." : "",
                       digits.substr(1), exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return fmt::format("0.{:0>{}}", digits, num_digits - exponent - 1);
  if (exponent >= num_digits - 1) return fmt::format("{:0<{}}.0", digits, exponent + 1);
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  return fmt::format("{}.{}", digits.substr(0, whole), digits.substr(whole));
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  std::string Take() { return out_.Take(); }

  void Add(const Value& value) {
    Spend(1);
    if (const std::string* text = value.AsText()) {
      AddText(*text);
    } else if (const Sequence* sequence = value.AsSequence()) {
      AddSequence(*sequence, value);
    } else if (const Dict* dict = value.AsDict()) {
      AddDict(*dict);
    } else {
      out_.Add(Scalar(value));
    }
  }

 private:
  static std::string Scalar(const Value& value) {
    if (value.Is<None>()) return "null";
    if (const auto* flag = value.As<bool>()) return *flag ? "true" : "false";
    if (const auto* integer = value.As<Integer>()) return fmt::format("{}", *integer);
    if (const auto* real = value.As<double>()) return Real(*real);
    throw Fault(fmt::format("Object of type {} is not JSON serializable", TypeName(value)));
  }

  static std::string Real(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FloatText(value);
  }

  void NewLine() {
    if (!style_.indent) return;
    out_.Add('\n');
    out_.Add(level_, *style_.indent);
  }

  void AddSequence(const Sequence& sequence, const Value& value) {
    if (sequence.kind != SequenceKind::kList && sequence.kind != SequenceKind::kTuple)
      Scalar(value);
    if (sequence.items.empty()) {
      out_.Add("[]");
      return;
    }
    out_.Add('[');
    ++level_;
    bool first = true;
    for (const Value& item : sequence.items) {
      if (!first) out_.Add(style_.item_separator);
      first = false;
      NewLine();
      Add(item);
    }
    --level_;
    NewLine();
    out_.Add(']');
  }

  using Member = std::pair<std::string, const Value*>;
  using Members = std::vector<Member, CountingAllocator<Member>>;

  static std::string KeyName(const Value& key) {
    if (const std::string* text = key.AsText()) return *text;
    if (key.AsSequence() != nullptr)
      throw Fault("keys must be str, int, float, bool or None, not tuple");
    return Scalar(key);
  }

  void AddDict(const Dict& dict) {
    if (dict.members.empty()) {
      out_.Add("{}");
      return;
    }
    Members members;
    members.reserve(dict.members.size());
    for (const auto& [key, value] : dict.members) members.emplace_back(KeyName(key), &value);
    // UTF-8 sorts as code points do.
    if (style_.sort_keys)
      std::ranges::stable_sort(members, {}, [](const auto& m) { return m.first; });
    out_.Add('{');
    ++level_;
    bool first = true;
    for (const auto& [name, value] : members) {
      if (!first) out_.Add(style_.item_separator);
      first = false;
      NewLine();
      AddText(name);
      out_.Add(style_.key_separator);
      Add(*value);
    }
    --level_;
    NewLine();
    out_.Add('}');
  }

  void AddText(std::string_view text) {
    SpendOnText(text.size());
    out_.Add('"');
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint c = CodePointAt(text, at);
      AddCharacter(c.value, text.substr(at, c.bytes));
      at += c.bytes;
    }
    out_.Add('"');
  }

  void AddCharacter(char32_t c, std::string_view bytes) {
    constexpr std::string_view kShort = "\"\\\n\r\t\f\b";
    constexpr std::string_view kLetters = "\"\\nrtfb";
    if (c < 0x80) {
      if (const std::size_t at = kShort.find(static_cast<char>(c)); at != std::string_view::npos) {
        out_.Add('\\');
        out_.Add(kLetters[at]);
        return;
      }
    }
    if (c >= 0x20 && (c < 0x7F || !style_.ensure_ascii)) {
      out_.Add(bytes);
    } else if (c <= 0xFFFF) {
      out_.Add(fmt::format("\\u{:04x}", static_cast<unsigned>(c)));
    } else {
      const auto rest = static_cast<unsigned>(c - 0x10000);
      out_.Add(fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF)));
    }
  }

  const JsonStyle& style_;
  TextBuilder out_;
  std::size_t level_ = 0;
};

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == 0.0) return std::signbit(value) ? "-0.0" : "0.0";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, std::abs(value), std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<std::size_t>(end.ptr - buffer));
  const std::size_t mark = text.find('e');
  std::string digits(text.substr(0, mark));
  std::erase(digits, '.');
  const int exponent = std::stoi(std::string(text.substr(mark + 1)));
  return fmt::format("{}{}", value < 0 ? "-" : "", Arranged(digits, exponent));
}

Shown::Shown(const Value& value) {
  if (value.AsText() == nullptr) made_ = Str(value);
  text_ = value.AsText() != nullptr ? *value.AsText() : *made_.AsText();
}

std::string Str(const Value& value) {
  if (const std::string* text = value.AsText()) {
    SpendOnText(text->size());
    CheckRoom(static_cast<double>(text->size()));
    return *text;
  }
  if (value.Is<Undefined>()) return "";
  if (value.Is<None>()) return "None";
  if (const auto* flag = value.As<bool>()) return *flag ? "True" : "False";
  if (const auto* integer = value.As<Integer>()) return fmt::format("{}", *integer);
  if (const auto* real = value.As<double>()) return FloatText(*real);
  return Repr(value);
}

std::string Repr(const Value& value) {
  ReprWriter writer;
  writer.Add(value);
  return writer.Take();
}

std::string ToJson(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.Add(value);
  return writer.Take();
}

}  // namespace spillway::jinja
