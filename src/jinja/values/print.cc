#include "src/jinja/values/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/jinja/values/fault.h"
#include "src/jinja/values/python_text.h"
#include "src/unicode/utf8.h"

namespace spillway::jinja {
namespace {

void AppendEscaped(char32_t c, std::string& out) {
  const auto code = static_cast<unsigned>(c);
  out += code <= 0xFF     ? fmt::format("\\x{:02x}", code)
         : code <= 0xFFFF ? fmt::format("\\u{:04x}", code)
                          : fmt::format("\\U{:08x}", code);
}

std::string ReprText(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = CodePointAt(text, at);
    if (c.value == static_cast<char32_t>(quote) || c.value == '\\') {
      out += '\\';
      out += static_cast<char>(c.value);
    } else if (c.value == '\n') {
      out += "\\n";
    } else if (c.value == '\r') {
      out += "\\r";
    } else if (c.value == '\t') {
      out += "\\t";
    } else if (IsPrintable(c.value)) {
      out += text.substr(at, c.bytes);
    } else {
      AppendEscaped(c.value, out);
    }
    at += c.bytes;
  }
  return out + quote;
}

// Appends parts of a container, within the bounds of a text and of nesting: a namespace may hold
// itself.
class ReprWriter {
 public:
  std::string Take() { return std::move(out_); }

  void Add(const Value& value) {
    if (++depth_ > 2 * kMaxDepth) throw Fault("a value that holds itself is printed");
    if (const Sequence* sequence = value.AsSequence()) {
      AddSequence(*sequence);
    } else if (const Dict* dict = value.AsDict()) {
      AddDict(*dict);
    } else if (const auto* space = value.As<NamespacePtr>()) {
      AddNamespace(**space);
    } else {
      out_ += ReprOfScalar(value);
    }
    CheckTextBytes(static_cast<double>(out_.size()));
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

  void AddItems(const std::vector<Value>& items) {
    bool first = true;
    for (const Value& item : items) {
      if (!first) out_ += ", ";
      first = false;
      Add(item);
    }
  }

  void AddSequence(const Sequence& sequence) {
    switch (sequence.kind) {
      case SequenceKind::kTuple:
        out_ += '(';
        AddItems(sequence.items);
        out_ += sequence.items.size() == 1 ? ",)" : ")";
        return;
      case SequenceKind::kList:
        out_ += '[';
        AddItems(sequence.items);
        out_ += ']';
        return;
      case SequenceKind::kRange:
        throw Fault("a range is printed; give it to the list filter first");
      case SequenceKind::kGenerator:
        throw Fault(
            "a generator is printed, whose text differs from run to run; give it to the "
            "list filter first");
      default:
        out_ += sequence.kind == SequenceKind::kKeys     ? "dict_keys(["
                : sequence.kind == SequenceKind::kValues ? "dict_values(["
                                                         : "dict_items([";
        AddItems(sequence.items);
        out_ += "])";
    }
  }

  void AddDict(const Dict& dict) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : dict.members) {
      if (!first) out_ += ", ";
      first = false;
      Add(key);
      out_ += ": ";
      Add(value);
    }
    out_ += '}';
  }

  void AddNamespace(const Namespace& space) {
    out_ += "<Namespace {";
    bool first = true;
    for (const auto& [name, value] : space.members) {
      if (!first) out_ += ", ";
      first = false;
      out_ += ReprText(name) + ": ";
      Add(value);
    }
    out_ += "}>";
  }

  std::string out_;
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

  std::string Take() { return std::move(out_); }

  void Add(const Value& value) {
    if (const std::string* text = value.AsText()) {
      AddText(*text);
    } else if (const Sequence* sequence = value.AsSequence()) {
      AddSequence(*sequence, value);
    } else if (const Dict* dict = value.AsDict()) {
      AddDict(*dict);
    } else {
      out_ += Scalar(value);
    }
    CheckTextBytes(static_cast<double>(out_.size()));
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
    out_ += '\n';
    CheckTextBytes(static_cast<double>(style_.indent->size()) * static_cast<double>(level_));
    for (std::size_t i = 0; i < level_; ++i) out_ += *style_.indent;
  }

  void AddSequence(const Sequence& sequence, const Value& value) {
    if (sequence.kind != SequenceKind::kList && sequence.kind != SequenceKind::kTuple)
      Scalar(value);
    if (sequence.items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    ++level_;
    bool first = true;
    for (const Value& item : sequence.items) {
      if (!first) out_ += style_.item_separator;
      first = false;
      NewLine();
      Add(item);
    }
    --level_;
    NewLine();
    out_ += ']';
  }

  static std::string KeyName(const Value& key) {
    if (const std::string* text = key.AsText()) return *text;
    if (key.AsSequence() != nullptr)
      throw Fault("keys must be str, int, float, bool or None, not tuple");
    return Scalar(key);
  }

  void AddDict(const Dict& dict) {
    if (dict.members.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<std::pair<std::string, const Value*>> members;
    for (const auto& [key, value] : dict.members) members.emplace_back(KeyName(key), &value);
    // UTF-8 sorts as code points do.
    if (style_.sort_keys)
      std::ranges::stable_sort(members, {}, [](const auto& m) { return m.first; });
    out_ += '{';
    ++level_;
    bool first = true;
    for (const auto& [name, value] : members) {
      if (!first) out_ += style_.item_separator;
      first = false;
      NewLine();
      AddText(name);
      out_ += style_.key_separator;
      Add(*value);
    }
    --level_;
    NewLine();
    out_ += '}';
  }

  void AddText(std::string_view text) {
    out_ += '"';
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint c = CodePointAt(text, at);
      AddCharacter(c.value, text.substr(at, c.bytes));
      at += c.bytes;
    }
    out_ += '"';
  }

  void AddCharacter(char32_t c, std::string_view bytes) {
    constexpr std::string_view kShort = "\"\\\n\r\t\f\b";
    constexpr std::string_view kLetters = "\"\\nrtfb";
    if (c < 0x80) {
      if (const std::size_t at = kShort.find(static_cast<char>(c)); at != std::string_view::npos) {
        out_ += '\\';
        out_ += kLetters[at];
        return;
      }
    }
    if (c >= 0x20 && (c < 0x7F || !style_.ensure_ascii)) {
      out_ += bytes;
    } else if (c <= 0xFFFF) {
      out_ += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      const auto rest = static_cast<unsigned>(c - 0x10000);
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    }
  }

  const JsonStyle& style_;
  std::string out_;
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

std::string Str(const Value& value) {
  if (const std::string* text = value.AsText()) return *text;
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
