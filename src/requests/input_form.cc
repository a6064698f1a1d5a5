#include "src/requests/input_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "spillway/error.h"
#include "src/base/strict_json.h"

namespace spillway {
namespace {

using std::string_view_literals::operator""sv;

// Form of a file, and how to make lines of it.
struct OtherForm {
  std::string_view what;
  std::string_view remedy;
};
using MaybeForm = std::optional<OtherForm>;  // nullopt: lines

constexpr std::string_view kToUtf8 = "convert it, for example with iconv -f UTF-16 -t UTF-8";
constexpr std::string_view kFromTable =
    "write one JSON object a line, for example with pandas: to_json(..., orient=\"records\", "
    "lines=True)";
constexpr std::string_view kUnpack = "unpack it first";
constexpr std::string_view kIsModel = "give it to --model, and a file of requests here";

struct Magic {
  std::string_view bytes;
  OtherForm form;
};

constexpr std::array kMagics = {
    Magic{"\xFF\xFE\0\0"sv, {"UTF-32", "convert it to UTF-8"}},
    Magic{"\0\0\xFE\xFF"sv, {"UTF-32", "convert it to UTF-8"}},
    Magic{"\xFF\xFE"sv, {"UTF-16, and UTF-8 is read", kToUtf8}},
    Magic{"\xFE\xFF"sv, {"UTF-16, and UTF-8 is read", kToUtf8}},
    Magic{"PAR1"sv, {"a Parquet file", kFromTable}},
    Magic{"ARROW1"sv, {"an Arrow file", kFromTable}},
    Magic{"\xFF\xFF\xFF\xFF"sv, {"an Arrow stream", kFromTable}},
    Magic{"FEA1"sv, {"a Feather file", kFromTable}},
    Magic{"ORC"sv, {"an ORC file", kFromTable}},
    Magic{"Obj\x01"sv, {"an Avro file", kFromTable}},
    Magic{"\x89HDF"sv, {"an HDF5 file", kFromTable}},
    Magic{"\x93NUMPY"sv, {"a NumPy file", kFromTable}},
    Magic{"SQLite format 3"sv, {"an SQLite database", kFromTable}},
    Magic{"\x80\x02"sv, {"a pickle of Python", kFromTable}},
    Magic{"\x80\x03"sv, {"a pickle of Python", kFromTable}},
    Magic{"\x80\x04"sv, {"a pickle of Python", kFromTable}},
    Magic{"\x80\x05"sv, {"a pickle of Python", kFromTable}},
    Magic{"\xD0\xCF\x11\xE0"sv, {"a workbook of Excel", kFromTable}},
    Magic{"PK\x03\x04"sv, {"a zip archive, as workbooks of Excel are", kUnpack}},
    Magic{"7z\xBC\xAF\x27\x1C"sv, {"a 7z archive", kUnpack}},
    Magic{"Rar!\x1A\x07"sv, {"a RAR archive", kUnpack}},
    Magic{"BZh"sv, {"compressed with bzip2", "unpack it with bunzip2"}},
    Magic{"\xFD"
          "7zXZ\0"sv,
          {"compressed with xz", "unpack it with unxz"}},
    Magic{"\x04\x22\x4D\x18"sv, {"compressed with lz4", "unpack it with unlz4"}},
    Magic{"\xFF\x06\0\0sNaPpY"sv, {"compressed with snappy", kUnpack}},
    Magic{"%PDF-"sv, {"a PDF", "write one JSON object a line"}},
    Magic{"\x1F\x8B"sv, {"gzip data within compressed data", "unpack it once, as gunzip does"}},
    Magic{"\x28\xB5\x2F\xFD"sv, {"zstd data within compressed data", "unpack it once"}},
    Magic{"GGUF\x02\0\0\0"sv, {"a GGUF file, which holds a model", kIsModel}},
    Magic{"GGUF\x03\0\0\0"sv, {"a GGUF file, which holds a model", kIsModel}},
};

bool IsWhite(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

// Bytes that no text has: C0 controls but white space, the end mark and escapes.
bool HasBinary(std::string_view bytes) {
  return std::ranges::any_of(bytes, [](char c) { return c >= '\0' && c < '\t'; });
}

// Calls `take` with each line that is not blank until it returns true; tells whether it did.
template <typename Take>
bool AnyLine(std::string_view bytes, Take take) {
  const bool returns = bytes.find('\n') == std::string_view::npos;
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t end = std::min(bytes.size(), bytes.find(returns ? '\r' : '\n', begin));
    std::string_view line = bytes.substr(begin, end - begin);
    while (!line.empty() && IsWhite(line.front())) line.remove_prefix(1);
    while (!line.empty() && IsWhite(line.back())) line.remove_suffix(1);
    if (!line.empty() && take(line)) return true;
    begin = end + 1;
  }
  return false;
}

std::string_view FirstLine(std::string_view bytes) {
  std::string_view first;
  AnyLine(bytes, [&](std::string_view line) {
    first = line;
    return true;
  });
  return first;
}

bool IsObject(std::string_view line) {
  return line.starts_with('{') && nlohmann::json::accept(line);
}

// A zero beside each of the first letters. Requires: no mark.
bool IsUtf16(std::string_view bytes) {
  constexpr std::size_t kLetters = 8;
  if (bytes.size() < kLetters) return false;
  const auto zeros_at = [&](std::size_t first) {
    for (std::size_t at = 0; at < kLetters; ++at)
      if ((bytes[at] == '\0') != (at % 2 == first)) return false;
    return true;
  };
  return zeros_at(0) || zeros_at(1);
}

// The sum of a header's bytes stands in it, in octal, and counts as blanks there; marks are of
// later forms.
bool IsTar(std::string_view bytes) {
  constexpr std::size_t kHeaderBytes = 512;
  constexpr std::size_t kSumAt = 148;
  constexpr std::size_t kSumBytes = 8;
  if (bytes.size() < kHeaderBytes || !HasBinary(bytes.substr(0, kHeaderBytes))) return false;
  uint64_t sum = 0;
  uint64_t noted = 0;
  for (std::size_t at = 0; at < kHeaderBytes; ++at) {
    const char c = bytes[at];
    const bool in_sum = at >= kSumAt && at < kSumAt + kSumBytes;
    if (in_sum && c >= '0' && c <= '7') noted = noted * 8 + static_cast<uint64_t>(c - '0');
    sum += in_sum ? uint64_t{' '} : static_cast<unsigned char>(c);
  }
  return sum == noted;
}

// The length of its header in eight bytes, and the header.
bool IsSafetensors(std::string_view bytes) {
  constexpr std::size_t kLengthBytes = 8;
  if (bytes.size() <= kLengthBytes || !bytes.substr(5).starts_with("\0\0\0{"sv)) return false;
  return bytes.substr(0, 5).find_first_not_of('\0') != bytes.npos;
}

// What is told by more than its first bytes, whatever its lines are.
MaybeForm MarkedForm(std::string_view bytes) {
  if (IsUtf16(bytes)) return OtherForm{"UTF-16, and UTF-8 is read", kToUtf8};
  if (IsTar(bytes)) return OtherForm{"a tar archive", "unpack it and give a file that was in it"};
  if (IsSafetensors(bytes))
    return OtherForm{"a safetensors file, which holds a model's weights",
                     "give its folder to --model, and a file of requests here"};
  constexpr std::string_view kPointer = "version https://git-lfs.github.com/spec/";
  if (bytes.starts_with(kPointer) &&
      bytes.substr(0, kPointer.size() + 40).find("\noid sha256:") != bytes.npos)
    return OtherForm{"a git-LFS pointer in place of the file", "run git lfs pull in its folder"};
  return std::nullopt;
}

MaybeForm BinaryForm(std::string_view bytes) {
  if (const MaybeForm marked = MarkedForm(bytes)) return marked;
  for (const Magic& magic : kMagics) {
    if (!bytes.starts_with(magic.bytes)) continue;
    // Words may begin as a Parquet file does.
    const bool is_text = std::ranges::all_of(magic.bytes, [](char c) { return c >= ' '; });
    if (is_text && !HasBinary(bytes)) continue;
    if (!AnyLine(bytes, IsObject)) return magic.form;
  }
  return std::nullopt;
}

// The end of the JSON document that the text begins with; npos: it goes on, or is none.
std::size_t DocumentEnd(std::string_view text) {
  int64_t depth = 0;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted && c == '\\') {
      ++at;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '{' || c == '[')) {
      ++depth;
    } else if (!quoted && (c == '}' || c == ']') && --depth == 0) {
      return at + 1;
    }
  }
  return std::string_view::npos;
}

// Notes where a document is no JSON.
class FaultFinder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::size_t fault() const { return fault_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fault_ = position;
    return false;
  }

 private:
  std::size_t fault_ = 0;
};

// Tells whether the text may be the start of a longer document: nothing is wrong with it but its
// end.
bool BeginsDocument(std::string_view text) {
  constexpr std::size_t kCharacter = 4;  // the last one may be cut
  FaultFinder finder;
  nlohmann::json::sax_parse(text, &finder);
  return finder.fault() + kCharacter > text.size();
}

MaybeForm FormOfDocument(bool is_array) {
  if (is_array) return OtherForm{"one JSON array", "write one object a line, as jq -c '.[]' does"};
  return OtherForm{"JSON objects over several lines each",
                   "write one object a line, as jq -c . does"};
}

// One document over several lines, or one array. Requires: the text begins with { or [.
MaybeForm DocumentForm(std::string_view text, bool whole) {
  const bool is_array = text.front() == '[';
  const std::size_t end = DocumentEnd(text);
  const std::string_view document = text.substr(0, end);
  const bool spans = document.find_first_of("\n\r") != std::string_view::npos;
  if (end == std::string_view::npos) {
    const bool longer = !whole && (is_array || spans) && BeginsDocument(text);
    return longer ? FormOfDocument(is_array) : std::nullopt;
  }
  const std::string_view next = FirstLine(text.substr(end));
  const bool alone = is_array && next.empty() && whole;
  if ((!spans && !alone) || IsObject(next) || !nlohmann::json::accept(document))
    return std::nullopt;
  return FormOfDocument(is_array);
}

// A first line of short names between separators.
bool IsHeader(std::string_view line, char separator) {
  constexpr std::size_t kLongestName = 40;
  std::size_t begin = 0;
  std::size_t num_names = 0;
  while (begin <= line.size()) {
    const std::size_t end = std::min(line.size(), line.find(separator, begin));
    const std::string_view name = line.substr(begin, end - begin);
    const bool is_name = std::ranges::all_of(name, [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c < '\0' || c == '_' || c == '-' ||
             c == '"' || c == ' ' || c == '.';
    });
    if (!is_name || name.size() > kLongestName || name.starts_with(' ')) return false;
    ++num_names;
    begin = end + 1;
  }
  return num_names > 1;
}

// Text without a line that may be a request.
MaybeForm TextForm(std::string_view bytes, const std::string& name) {
  const std::string_view first = FirstLine(bytes);
  if (HasBinary(first)) return OtherForm{"binary data", "write one JSON object a line"};
  if (first.starts_with('<')) return OtherForm{"XML or HTML", "write one JSON object a line"};
  if (IsHeader(first, '\t') || name.ends_with(".tsv"))
    return OtherForm{"tab-separated text (TSV)", kFromTable};
  if (IsHeader(first, ',') || IsHeader(first, ';') || name.ends_with(".csv"))
    return OtherForm{"comma-separated text (CSV)", kFromTable};
  return OtherForm{"plain text",
                   "write one JSON object a line, or give the text in a file whose name ends in "
                   ".txt, a prompt a line"};
}

MaybeForm OtherThanJsonLines(const InputHead& head, const std::string& name) {
  const std::string_view first = FirstLine(head.bytes);
  if (first.empty()) return std::nullopt;
  if (first.front() == '{' || first.front() == '[') {
    const bool python = first.starts_with("{'") && !AnyLine(head.bytes, [](std::string_view line) {
                          return !line.starts_with("{'");
                        });
    if (python) return OtherForm{"dictionaries of Python", "write each with json.dumps"};
    const std::size_t begin = static_cast<std::size_t>(first.data() - head.bytes.data());
    const std::string_view text = head.bytes.substr(begin);
    if (!MentionsNonFinite(text)) return DocumentForm(text, head.whole);
    return DocumentForm(WithoutNonFinite(text).value_or(std::string(text)), head.whole);
  }
  const bool has_object =
      AnyLine(head.bytes, [](std::string_view line) { return line.starts_with('{'); });
  const bool is_json = nlohmann::json::accept(first);
  return has_object || is_json ? std::nullopt : TextForm(head.bytes, name);
}

}  // namespace

std::string UnpackedExtension(const std::filesystem::path& path) {
  const auto extension_of = [](const std::filesystem::path& file) {
    std::string extension = file.extension().string();
    std::ranges::transform(extension, extension.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
    return extension;
  };
  const std::string outer = extension_of(path);
  const bool packed = outer == ".gz" || outer == ".zst" || outer == ".zstd";
  return packed ? extension_of(path.stem()) : outer;
}

InputForm FormOf(const std::filesystem::path& path) {
  return UnpackedExtension(path) == ".txt" ? InputForm::kPlainLines : InputForm::kJsonLines;
}

void RefuseOtherForm(const InputHead& head, InputForm form, const std::string& name) {
  MaybeForm other = BinaryForm(head.bytes);
  if (!other && form == InputForm::kJsonLines) other = OtherThanJsonLines(head, name);
  if (!other) return;
  throw Error(ErrorCode::kInput,
              fmt::format("{}: is {}; {}", Printable(name), other->what, other->remedy));
}

}  // namespace spillway
