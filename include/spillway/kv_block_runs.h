// Blocks of a row's cache that a pass moves, as the mover moves them and the cost model counts
// them. Pure functions of values; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "spillway/kv_block.h"
#include "spillway/plan.h"
#include "spillway/round.h"
#include "spillway/tier.h"

namespace spillway {

// Blocks [begin, end) of a row's KV in a tier.
struct KvBlockRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Calls `visit` with each range of neighbouring blocks in which slots lie that `slots_of` names of
// each run's keep. Blocks on disk may hold the end of one run and the begin of the next.
template <typename SlotsOf, typename Visit>
void ForEachKvBlockRange(const Plan& plan, Tier tier, const KvRowAt& row, SlotsOf slots_of,
                         Visit visit) {
  const int64_t align = plan.slot_align[tier];
  KvBlockRange blocks;
  ForEachKvRun(plan, row, [&](const KvRunPlace& at) {
    const SlotRange slots = slots_of(at.keep);
    if (slots.begin == slots.end) return;
    const KvBlockRange next = {(at.slot_begin + slots.begin) / align,
                               DivideUp(at.slot_begin + slots.end, align)};
    if (next.begin > blocks.end) {
      if (blocks.begin < blocks.end) visit(blocks);
      blocks = next;
    }
    blocks.end = std::max(blocks.end, next.end);
  });
  if (blocks.begin < blocks.end) visit(blocks);
}

}  // namespace spillway
