#include "src/requests/line_source.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "spillway/error.h"
#include "src/requests/line_text.h"

namespace spillway {
namespace {

constexpr std::size_t kChunkBytes = 256 << 10;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr char kEndMark = 0x1A;  // Control-Z

}  // namespace

uint32_t Line::Hash() const {
  const auto place = static_cast<uint64_t>(number ^ (num_bytes << 40));
  return static_cast<uint32_t>(XXH3_64bits_withSeed(text.data(), text.size(), place));
}

void LineSource::HashDeleter::operator()(XXH64_state_s* state) const { XXH64_freeState(state); }

LineSource::LineSource(const std::filesystem::path& path, std::string name, int64_t max_line_bytes)
    : file_(path, std::move(name)),
      max_line_bytes_(static_cast<std::size_t>(max_line_bytes)),
      buffer_(kChunkBytes),
      hash_(XXH64_createState()) {
  SPILLWAY_CHECK(max_line_bytes > 0);
  if (hash_ == nullptr) throw std::bad_alloc();
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
  const std::size_t got = file_.Read(buffer_.data() + end_, buffer_.size() - end_);
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

InputHead LineSource::Head() {
  SPILLWAY_CHECK(num_lines_ == 0);
  if (num_bytes_ == 0) SkipByteOrderMark();
  while (end_ < buffer_.size() && Fill()) {
  }
  return {{buffer_.data() + begin_, end_ - begin_}, at_end_};
}

// Drops bytes up to and with the line's end; returns how many, without it.
int64_t LineSource::SkipLine() {
  int64_t skipped = 0;
  do {
    const char* end =
        static_cast<const char*>(std::memchr(buffer_.data() + begin_, line_end_, end_ - begin_));
    const std::size_t size =
        end == nullptr ? end_ - begin_ : static_cast<std::size_t>(end - buffer_.data()) - begin_;
    skipped += static_cast<int64_t>(size);
    Consume(end == nullptr ? size : size + 1);
    if (end != nullptr) break;
  } while (Fill());
  return skipped;
}

LineSource::Extent LineSource::FindEnd() {
  std::size_t searched = 0;
  while (true) {
    const char* end = static_cast<const char*>(
        std::memchr(buffer_.data() + begin_ + searched, line_end_, end_ - begin_ - searched));
    if (end != nullptr) return {static_cast<std::size_t>(end - buffer_.data()) - begin_, true};
    searched = end_ - begin_;
    if (searched > max_line_bytes_ + 1 || !Fill()) return {searched, false};
  }
}

// Files of old editors: so many bytes without a "\n", and a "\r" with more behind it.
bool LineSource::EndsInReturns(std::size_t size) const {
  const char* found = static_cast<const char*>(std::memchr(buffer_.data() + begin_, '\r', size));
  return found != nullptr && found + 1 < buffer_.data() + begin_ + size;
}

bool LineSource::IsLast(const Extent& extent) {
  return !extent.ended || (begin_ + extent.size + 1 == end_ && !Fill());
}

std::optional<Line> LineSource::Next() {
  if (num_bytes_ == 0) SkipByteOrderMark();
  Extent extent = FindEnd();
  if (!extent.ended && num_lines_ == 0 && EndsInReturns(extent.size)) {
    line_end_ = '\r';
    extent = FindEnd();
  }
  if (!extent.ended && extent.size == 0) return std::nullopt;

  Line line;
  line.number = ++num_lines_;
  line.num_bytes = static_cast<int64_t>(extent.size);
  std::string_view text(buffer_.data() + begin_, extent.size);
  if (text.ends_with('\r')) text.remove_suffix(1);
  if (text.size() > max_line_bytes_) {
    line.too_long = true;
    line.num_bytes = SkipLine();
    return line;
  }
  const bool marked = text.ends_with(kEndMark) && IsLast(extent);  // which may move the bytes
  line.text = {buffer_.data() + begin_, text.size() - (marked ? 1 : 0)};
  line.blank = IsBlank(line.text);
  num_blank_lines_ += line.blank ? 1 : 0;
  Consume(extent.ended ? extent.size + 1 : extent.size);
  return line;
}

}  // namespace spillway
