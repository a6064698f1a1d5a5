#include "src/move/link_meter.h"

#include <algorithm>

namespace spillway {

void LinkMeter::Add(const CopyTimes& times, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  totals_.bytes += bytes;
  auto* const begin = spans_.begin();
  auto* const end = begin + num_spans_;
  // The spans that it touches become one with it.
  auto* first = std::lower_bound(begin, end, times.begin_s, [](const CopyTimes& span, double at_s) {
    return span.end_s < at_s;
  });
  CopyTimes joined = times;
  double counted_s = 0.0;
  auto* last = first;
  for (; last != end && last->begin_s <= times.end_s; ++last) {
    counted_s += last->end_s - last->begin_s;
    joined.begin_s = std::min(joined.begin_s, last->begin_s);
    joined.end_s = std::max(joined.end_s, last->end_s);
  }
  totals_.busy_s += joined.end_s - joined.begin_s - counted_s;
  if (first == last) return Insert(first, joined);
  std::copy(last, end, first + 1);
  num_spans_ -= static_cast<std::size_t>(last - first - 1);
  *first = joined;
}

// Drops the oldest where there is no room.
void LinkMeter::Insert(CopyTimes* at, const CopyTimes& span) {
  auto* const begin = spans_.begin();
  if (num_spans_ < kMaxSpans) {
    std::copy_backward(at, begin + num_spans_, begin + num_spans_ + 1);
    *at = span;
    ++num_spans_;
  } else if (at != begin) {
    std::copy(begin + 1, at, begin);
    *(at - 1) = span;
  }
}

LinkTotals LinkMeter::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

}  // namespace spillway
