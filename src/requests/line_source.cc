#include "src/requests/line_source.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "spillway/error.h"
#include "src/requests/input_file.h"

namespace spillway {
namespace {

constexpr std::size_t kChunkBytes = 256 << 10;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

void LineSource::HashDeleter::operator()(XXH64_state_s* state) const { XXH64_freeState(state); }

LineSource::LineSource(const std::filesystem::path& path, int64_t max_line_bytes)
    : name_(path == "-" ? "standard input" : path.string()),
      file_(OpenInput(path)),
      max_line_bytes_(static_cast<std::size_t>(max_line_bytes)),
      buffer_(kChunkBytes),
      hash_(XXH64_createState()) {
  SPILLWAY_CHECK(max_line_bytes > 0);
  SPILLWAY_CHECK(hash_ != nullptr);
  XXH64_reset(hash_.get(), 0);
}

LineSource::~LineSource() = default;

uint64_t LineSource::hash() const { return XXH64_digest(hash_.get()); }

// Reads more behind the unread bytes; false at the end. The buffer at most doubles each time, up to
// one line of the longest length (with its "\r\n") and a chunk.
bool LineSource::Fill() {
  if (at_end_) return false;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size())
    buffer_.resize(std::min(2 * buffer_.size(), max_line_bytes_ + 2 + kChunkBytes));
  SPILLWAY_CHECK(end_ < buffer_.size());
  const std::size_t got = ReadSome(file_, buffer_.data() + end_, buffer_.size() - end_, name_);
  end_ += got;
  at_end_ = got == 0;
  return !at_end_;
}

void LineSource::Consume(std::size_t size) {
  XXH64_update(hash_.get(), buffer_.data() + begin_, size);
  begin_ += size;
  num_bytes_ += static_cast<int64_t>(size);
}

void LineSource::SkipByteOrderMark() {
  while (end_ - begin_ < kByteOrderMark.size() && Fill()) {
  }
  if (std::string_view(buffer_.data() + begin_, end_ - begin_).starts_with(kByteOrderMark)) {
    Consume(kByteOrderMark.size());
  }
}

// Drops bytes up to and with the next newline; returns how many, without it.
int64_t LineSource::SkipLine() {
  int64_t skipped = 0;
  do {
    const char* newline =
        static_cast<const char*>(std::memchr(buffer_.data() + begin_, '\n', end_ - begin_));
    const std::size_t size = newline == nullptr
                                 ? end_ - begin_
                                 : static_cast<std::size_t>(newline - buffer_.data()) - begin_;
    skipped += static_cast<int64_t>(size);
    Consume(newline == nullptr ? size : size + 1);
    if (newline != nullptr) break;
  } while (Fill());
  return skipped;
}

std::optional<Line> LineSource::Next() {
  if (num_bytes_ == 0) SkipByteOrderMark();
  std::size_t searched = 0;
  const char* newline = nullptr;
  while (true) {
    newline = static_cast<const char*>(
        std::memchr(buffer_.data() + begin_ + searched, '\n', end_ - begin_ - searched));
    searched = end_ - begin_;
    if (newline != nullptr || searched > max_line_bytes_ + 1 || !Fill()) break;
  }
  const std::size_t size =
      newline == nullptr ? searched : static_cast<std::size_t>(newline - buffer_.data()) - begin_;
  if (newline == nullptr && size == 0) return std::nullopt;

  Line line;
  line.number = ++num_lines_;
  line.num_bytes = static_cast<int64_t>(size);
  std::string_view text(buffer_.data() + begin_, size);
  if (text.ends_with('\r')) text.remove_suffix(1);
  if (text.size() > max_line_bytes_) {
    line.too_long = true;
    line.num_bytes = SkipLine();
    return line;
  }
  line.text = text;
  line.blank = text.find_first_not_of(" \t\r") == std::string_view::npos;
  num_blank_lines_ += line.blank ? 1 : 0;
  Consume(newline == nullptr ? size : size + 1);
  return line;
}

}  // namespace spillway
