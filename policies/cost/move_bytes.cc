#include "policies/cost/move_bytes.h"

#include <algorithm>

#include "spillway/round.h"
#include "spillway/tile.h"

namespace spillway {
namespace {

// A tile's way to the device.
void AddTile(const Plan& plan, const TensorSpec& spec, const WeightTile& tile,
             PerLink<int64_t>& bytes) {
  if (tile.tier == plan.device()) return;
  int64_t size = TileBytes(spec, tile);
  if (tile.tier == Tier::kDisk) {
    size = RoundUp(size, kTileAlignBytes);
    bytes[Link::kDiskRead] += size;
  }
  if (plan.device() == Tier::kGpu) bytes[Link::kCpuToGpu] += size;
}

// Places of the log that are moved for rows which have decoded so many tokens: up to their last
// one, with all before it.
int64_t LogPlaces(const KvLoad& kv, int64_t num_decoded) {
  int64_t places = 0;
  for (const LoggedRows& rows : kv.logged) {
    if (rows.num_decoded >= num_decoded) places = std::max(places, rows.log_end);
  }
  return places;
}

// Slots that a row holds after so many tokens, in whole blocks of the disk.
int64_t HeldOnDisk(const Plan& plan, const LoggedRows& rows, int64_t num_tokens) {
  return HeldSlots(plan, Tier::kDisk, rows.kv_class, rows.shape.slots(), num_tokens);
}

// Bytes written to disk: all that the pass changes, or of rows that are not written whole what
// their log gets.
int64_t KvWrittenBytes(const Plan& plan, const Cursor& cell, const KvLoad& kv) {
  if (plan.LoggedAfter(cell) == 0) return kv.stored_slots * plan.slot_bytes;
  return kv.prompt_slots * plan.slot_bytes +
         LogPlaces(kv, 0) * (plan.kv_log.state_bytes + plan.kv_log.token_bytes);
}

}  // namespace

PerLink<int64_t> WeightBytes(const Plan& plan, int64_t layer) {
  PerLink<int64_t> bytes;
  ForEachTensorComingWith(plan, layer, [&](const PlannedTensor& tensor) {
    for (const WeightTile& tile : tensor.tiles) AddTile(plan, tensor.spec, tile, bytes);
  });
  return bytes;
}

PerLink<int64_t> FirstWeightBytes(const Plan& plan) {
  PerLink<int64_t> bytes;
  for (const PlannedTensor& tensor : plan.layers.front().tensors) {
    for (const WeightTile& tile : tensor.tiles) AddTile(plan, tensor.spec, tile, bytes);
  }
  return bytes;
}

PerLink<int64_t> KvInBytes(const Plan& plan, const PerTier<KvLoad>& kv) {
  PerLink<int64_t> bytes;
  for (const Tier tier : kAllTiers) {
    if (plan.KvInPlace(tier)) continue;
    const int64_t size = kv[tier].loaded_slots * plan.slot_bytes;
    if (tier == Tier::kDisk) bytes[Link::kDiskRead] += size;
    if (plan.kv_staging.tier == Tier::kGpu) bytes[Link::kCpuToGpu] += size;
  }
  return bytes;
}

PerLink<int64_t> KvInBytes(const Plan& plan, const Cursor& cell, const PerTier<KvLoad>& kv) {
  PerLink<int64_t> bytes = KvInBytes(plan, kv);
  const KvLoad& on_disk = kv[Tier::kDisk];
  const int64_t num_tokens = plan.LoggedBefore(cell);
  if (num_tokens == 0) return bytes;
  // Tokens that the log has are missing in the whole blocks on disk.
  for (const LoggedRows& rows : on_disk.logged) {
    const int64_t num_whole = rows.num_past - std::min(num_tokens, rows.num_decoded);
    bytes[Link::kDiskRead] +=
        rows.count * plan.slot_bytes *
        (HeldOnDisk(plan, rows, num_whole) - HeldOnDisk(plan, rows, rows.num_past));
  }
  bytes[Link::kDiskRead] += LogPlaces(on_disk, 1) * plan.kv_log.state_bytes;
  for (int64_t token = 1; token <= num_tokens; ++token) {
    bytes[Link::kDiskRead] += LogPlaces(on_disk, token) * plan.kv_log.token_bytes;
  }
  return bytes;
}

// Rows that the CPU attends to get their new tokens from the GPU that made them.
PerLink<int64_t> KvOutBytes(const Plan& plan, const Cursor& cell, const PerTier<KvLoad>& kv) {
  PerLink<int64_t> bytes;
  for (const Tier tier : kAllTiers) {
    const int64_t size = kv[tier].stored_slots * plan.slot_bytes;
    if (!plan.KvInPlace(tier)) {
      if (tier == Tier::kDisk) bytes[Link::kDiskWrite] += KvWrittenBytes(plan, cell, kv[tier]);
      if (plan.kv_staging.tier == Tier::kGpu) bytes[Link::kGpuToCpu] += size;
    }
    if (plan.device() == Tier::kGpu && plan.policy.cpu_attention && tier != Tier::kGpu) {
      bytes[Link::kGpuToCpu] += kv[tier].new_slots * plan.UsedSlotBytes();
    }
  }
  return bytes;
}

PerLink<int64_t> HiddenInBytes(const Plan& plan, const BatchLoad& load) {
  PerLink<int64_t> bytes;
  for (const Tier tier : kAllTiers) {
    if (tier == plan.device()) continue;
    int64_t size = load.hidden_tokens[tier] * plan.HiddenRowBytes();
    if (tier == Tier::kDisk) size = RoundUp(size, kHiddenBlockBytes);
    if (tier == Tier::kDisk) bytes[Link::kDiskRead] += size;
    if (plan.device() == Tier::kGpu) bytes[Link::kCpuToGpu] += size;
  }
  return bytes;
}

PerLink<int64_t> HiddenOutBytes(const Plan& plan, const BatchLoad& load) {
  const PerLink<int64_t> in = HiddenInBytes(plan, load);
  PerLink<int64_t> bytes;
  bytes[Link::kDiskWrite] = in[Link::kDiskRead];
  bytes[Link::kGpuToCpu] = in[Link::kCpuToGpu];
  return bytes;
}

}  // namespace spillway
