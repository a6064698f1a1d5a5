#include "src/requests/line_stream.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <utility>

#include "src/base/io_thread.h"
#include "src/base/stop_signal.h"
#include "src/requests/line_text.h"

namespace spillway {
namespace {

constexpr std::size_t kChunkBytes = 64 << 10;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Time between looks at a stop, of a signal or of the stream's end.
constexpr std::chrono::milliseconds kLook(50);

// Sum of a line's text and what holds it.
int64_t CostOf(const Arrival& line) {
  return static_cast<int64_t>(line.text.size() + sizeof(Arrival));
}

}  // namespace

Line Arrival::AsLine() const {
  return {number, text, num_bytes, too_long, !too_long && IsBlank(text)};
}

LineStream::LineStream(Descriptor file, std::string name, const StreamLimits& limits)
    : file_(std::move(file)), name_(std::move(name)), limits_(limits) {
  thread_ = StartIoThread([this] { ReadAll(); });
}

LineStream::~LineStream() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Arrival LineStream::Next() { return NextWithin(std::numeric_limits<double>::infinity()); }

Arrival LineStream::NextWithin(double seconds) {
  const auto begin = std::chrono::steady_clock::now();
  ThrowIfNothingMayBegin();
  std::unique_lock lock(mutex_);
  while (waiting_.empty() && !ended_) {
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    if (waited.count() >= seconds) return {Arrival::Kind::kPause, 0, {}, 0, false};
    const std::chrono::duration<double> left(seconds - waited.count());
    changed_.wait_for(lock, std::min<std::chrono::duration<double>>(kLook, left));
    ThrowIfNothingMayBegin();
  }
  if (!waiting_.empty()) return Take();
  if (error_) std::rethrow_exception(error_);
  return {};
}

// Requires: the lock is held.
Arrival LineStream::Take() {
  Arrival line = std::move(waiting_.front());
  waiting_.pop_front();
  waiting_bytes_ -= CostOf(line);
  changed_.notify_all();
  return line;
}

// Waits where nothing is there to read, but never beyond the stream's own end.
bool LineStream::HasBytes() const {
  pollfd wait{file_.get(), POLLIN, 0};
  return ::poll(&wait, 1, static_cast<int>(kLook.count())) != 0;
}

void LineStream::ReadAll() {
  std::string unread;
  std::array<char, kChunkBytes> chunk;
  try {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        while (!closing_ && waiting_bytes_ >= limits_.ahead_bytes) changed_.wait_for(lock, kLook);
        if (closing_) return;
      }
      if (!HasBytes()) continue;
      const std::size_t got = ReadSome(file_, chunk.data(), chunk.size(), name_);
      if (got == 0) break;
      unread.append(chunk.data(), got);
      Split(unread);
    }
    if (!unread.empty() || skipped_bytes_ > 0) Put(std::move(unread));
    End(nullptr);
  } catch (...) {
    End(std::current_exception());
  }
}

// Takes whole lines off the front. Of a line that is too long only its length is kept.
void LineStream::Split(std::string& unread) {
  std::size_t begin = 0;
  for (std::size_t end = unread.find('\n'); end != std::string::npos;
       end = unread.find('\n', begin)) {
    Put(unread.substr(begin, end - begin));
    begin = end + 1;
  }
  unread.erase(0, begin);
  if (skipped_bytes_ == 0 && static_cast<int64_t>(unread.size()) <= limits_.line_bytes + 1) return;
  skipped_bytes_ += static_cast<int64_t>(unread.size());
  unread.clear();
}

void LineStream::Put(std::string text) {
  Arrival line;
  line.kind = Arrival::Kind::kLine;
  line.number = ++num_lines_;
  const int64_t skipped_bytes = std::exchange(skipped_bytes_, 0);
  line.num_bytes = skipped_bytes + static_cast<int64_t>(text.size());
  if (line.number == 1 && text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  if (text.ends_with('\r')) text.pop_back();
  line.too_long = skipped_bytes > 0 || static_cast<int64_t>(text.size()) > limits_.line_bytes;
  if (!line.too_long) line.text = std::move(text);
  const std::lock_guard lock(mutex_);
  waiting_bytes_ += CostOf(line);
  waiting_.push_back(std::move(line));
  changed_.notify_all();
}

void LineStream::End(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  error_ = std::move(error);
  changed_.notify_all();
}

}  // namespace spillway
