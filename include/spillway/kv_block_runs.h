// Blocks of a row's cache that a pass moves, as the mover moves them and the cost model counts
// them. Pure functions of values; any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "spillway/kv_block.h"
#include "spillway/plan.h"
#include "spillway/tier.h"

namespace spillway {

// Blocks [begin, end) of a row's KV in a tier.
struct KvBlockRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Ranges of neighbouring blocks, of the slots of one run after another. Blocks on disk may hold the
// end of one run and the begin of the next.
template <typename Visit>
class KvBlockRanges {
 public:
  // Calls `visit` with each range when it is whole; `align`: slots of a block.
  KvBlockRanges(int64_t align, Visit visit)
      : align_(align),
        shift_(std::has_single_bit(static_cast<uint64_t>(align))
                   ? std::countr_zero(static_cast<uint64_t>(align))
                   : -1),
        visit_(visit) {}

  void Add(const KvRunPlace& at, const SlotRange& slots) {
    if (slots.begin == slots.end) return;
    const KvBlockRange next = {BlockOf(at.slot_begin + slots.begin),
                               BlockOf(at.slot_begin + slots.end + align_ - 1)};
    if (next.begin > blocks_.end) {
      End();
      blocks_ = next;
    }
    blocks_.end = std::max(blocks_.end, next.end);
  }
  // No run follows.
  void End() {
    if (blocks_.begin < blocks_.end) visit_(blocks_);
  }

 private:
  // Divides, which takes longest of all here, only where it must.
  int64_t BlockOf(int64_t slot) const { return shift_ < 0 ? slot / align_ : slot >> shift_; }

  int64_t align_;
  int shift_;  // of a power of two; -1: it is none
  Visit visit_;
  KvBlockRange blocks_;
};

// Calls `visit` with each range of blocks in which slots lie that `slots_of` names of each run's
// keep.
template <typename SlotsOf, typename Visit>
void ForEachKvBlockRange(const Plan& plan, Tier tier, const KvRowAt& row, SlotsOf slots_of,
                         Visit visit) {
  KvBlockRanges ranges(plan.slot_align[tier], visit);
  ForEachKvRun(plan, row, [&](const KvRunPlace& at) { ranges.Add(at, slots_of(at.keep)); });
  ranges.End();
}

}  // namespace spillway
