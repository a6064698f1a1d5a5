// LinkMeter: what went over one link and how long the link was busy, from the transfers of all the
// streams that use it. Where two overlap, the time counts once. Thread rule: any thread; allocates
// nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "spillway/trace.h"
#include "src/device/copy_queue.h"

namespace spillway {

class LinkMeter {
 public:
  // A transfer that is done. Transfers may be told in any order, as long as none began before more
  // than kMaxSpans rests of the link that were told already; then some time counts twice.
  void Add(const CopyTimes& times, int64_t bytes);

  LinkTotals totals() const;

 private:
  static constexpr std::size_t kMaxSpans = 64;

  void Insert(CopyTimes* at, const CopyTimes& span);

  mutable std::mutex mutex_;
  LinkTotals totals_;
  // The latest times in which the link was busy: ascending, none touches another.
  std::array<CopyTimes, kMaxSpans> spans_;
  std::size_t num_spans_ = 0;
};

}  // namespace spillway
