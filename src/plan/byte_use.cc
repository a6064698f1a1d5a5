#include "spillway/byte_use.h"

#include <numeric>

namespace spillway {

PerTier<UsedBytes> BytesByUse(const Plan& plan) {
  PerTier<UsedBytes> used;
  for (const Tier tier : kAllTiers) {
    used[tier][ByteUse::kWeights] = plan.weight_bytes[tier];
    used[tier][ByteUse::kKv] = plan.KvBytesIn(tier);
    used[tier][ByteUse::kActivations] = plan.hidden[tier].region.bytes;
  }
  used[Tier::kDisk][ByteUse::kKv] += plan.KvLogBytes();
  for (const Region& slot : plan.kv_log.staging) used[Tier::kCpu][ByteUse::kStaging] += slot.bytes;
  UsedBytes& device = used[plan.device()];
  device[ByteUse::kKv] += plan.prefix.scores.bytes;
  device[ByteUse::kActivations] += plan.prefix.hidden.bytes;
  device[ByteUse::kStaging] += plan.weight_staging.bytes;
  for (const StagingPlan& staging : {plan.kv_staging, plan.hidden_staging}) {
    for (const Region& slot : staging.slots) used[staging.tier][ByteUse::kStaging] += slot.bytes;
  }
  for (const Region& ring : plan.bounce.regions()) used[Tier::kCpu][ByteUse::kBounce] += ring.bytes;
  used[Tier::kCpu][ByteUse::kBounce] += plan.exchange.host.bytes;
  used[Tier::kCpu][ByteUse::kTables] = plan.table_bytes;
  // The last of the device's arena; its buffers share their place, so that their sizes do not add
  // up to it. Rings exist only where the device's arena is not the CPU's.
  device[ByteUse::kWorkspace] = plan.arena_bytes[plan.device()] - plan.workspace.matmul.offset;
  for (const Tier tier : kAllTiers) {
    const auto& values = used[tier].values;
    used[tier][ByteUse::kPadding] =
        plan.PlannedBytes(tier) - std::accumulate(values.begin(), values.end(), int64_t{0});
  }
  return used;
}

}  // namespace spillway
