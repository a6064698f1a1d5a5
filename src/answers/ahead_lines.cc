#include "src/answers/ahead_lines.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <optional>
#include <utility>

#include "spillway/error.h"
#include "src/answers/framed_line.h"
#include "src/base/system_error.h"

namespace spillway {
namespace {

constexpr std::string_view kStart = "{\"ahead\":";

std::string HeaderOf(const std::string& run_digest) {
  return FramedLine(fmt::format("{}\"{}\"}}", kStart, run_digest));
}

// "LINE ANSWER"; false where it is not.
bool TakeAnswer(std::string_view text, AheadContent& content) {
  int64_t line = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), line);
  const auto digits = static_cast<std::size_t>(end - text.data());
  if (error != std::errc() || digits == text.size() || text[digits] != ' ') return false;
  content.answers[line] = fmt::format("{}\n", text.substr(digits + 1));
  return true;
}

}  // namespace

AheadContent ParseAhead(std::string_view text, const std::string& run_digest) {
  AheadContent content;
  const std::string header = HeaderOf(run_digest);
  if (!text.starts_with(header)) return content;
  std::size_t begin = header.size();
  content.header_bytes = static_cast<int64_t>(begin);
  while (true) {
    content.num_bytes = static_cast<int64_t>(begin);
    const std::size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) return content;
    const std::optional<std::string_view> framed = FramedText(text.substr(begin, end - begin));
    if (!framed || !TakeAnswer(*framed, content)) return content;
    begin = end + 1;
  }
}

bool IsAhead(std::string_view text) { return BeginsFramed(text, kStart); }

AheadLines::AheadLines(Descriptor file, std::string name, const std::string& run_digest)
    : file_(std::move(file)), name_(std::move(name)), header_(HeaderOf(run_digest)) {}

AheadLines::AheadLines(Descriptor file, std::string name, const AheadContent& content)
    : file_(std::move(file)), name_(std::move(name)), header_bytes_(content.header_bytes) {
  SPILLWAY_CHECK(header_bytes_ > 0);
  Cut(content.num_bytes);
}

void AheadLines::Append(int64_t line, std::string_view answer) {
  SPILLWAY_CHECK(answer.ends_with('\n'));
  answer.remove_suffix(1);
  if (header_bytes_ == 0) {
    WriteAll(file_, header_, name_);
    header_bytes_ = num_bytes_ = std::ssize(header_);
  }
  const std::string framed = FramedLine(fmt::format("{} {}", line, answer));
  WriteAll(file_, framed, name_);
  num_bytes_ += static_cast<int64_t>(framed.size());
}

void AheadLines::Sync() { spillway::Sync(file_, name_); }

void AheadLines::Clear() { Cut(header_bytes_); }

void AheadLines::Cut(int64_t bytes) {
  if (::ftruncate(file_.get(), bytes) != 0 || ::lseek(file_.get(), bytes, SEEK_SET) < 0) {
    ThrowSystemError(errno, fmt::format("{}: cannot be cut", Printable(name_)), ErrorCode::kIo,
                     "see the system's log");
  }
  num_bytes_ = bytes;
}

}  // namespace spillway
