#include "src/plan/place_rows.h"

#include <algorithm>

#include "spillway/kv_block.h"
#include "spillway/round.h"

namespace spillway {
namespace {

// Bytes of a tier's hidden states; on disk they take whole blocks.
int64_t HiddenShareBytes(const Plan& plan, Tier tier) {
  const int64_t bytes = plan.hidden[tier].size * plan.HiddenRowBytes();
  return tier == Tier::kDisk ? RoundUp(bytes, kHiddenBlockBytes) : bytes;
}

// Rows of a batch that do not lie where they are computed.
struct StagedRows {
  int64_t kv_slots = 0;
  int64_t hidden_bytes = 0;
};

StagedRows StagedRowsOf(const Plan& plan) {
  StagedRows staged;
  for (const Tier tier : kAllTiers) {
    if (!plan.KvInPlace(tier)) staged.kv_slots += plan.kv[tier].size;
    if (tier != plan.device()) staged.hidden_bytes += HiddenShareBytes(plan, tier);
  }
  return staged;
}

// Bytes of a row: whole, of its state, of one token.
struct LogSizes {
  int64_t row_bytes = 0;
  int64_t state_bytes = 0;
  int64_t token_bytes = 0;
};

// Bytes read and written of a row in one pass, where it is written whole every `passes` passes.
double BytesOfAPass(const LogSizes& sizes, int64_t passes) {
  const auto between = static_cast<double>(passes - 1);
  const auto state = static_cast<double>(sizes.state_bytes);
  const auto token = static_cast<double>(sizes.token_bytes);
  // A pass reads each token since the row was written whole.
  const double log = between * (2.0 * state + token) + between * (between + 1.0) / 2.0 * token;
  const auto n = static_cast<double>(passes);
  return static_cast<double>(sizes.row_bytes) * (1.0 + 1.0 / n) + log / n;
}

// The number of passes with which the fewest bytes are read and written.
int64_t PassesOfALog(const LogSizes& sizes, int64_t most) {
  int64_t best = 1;
  for (int64_t passes = 2; passes <= most; ++passes) {
    if (BytesOfAPass(sizes, passes) < BytesOfAPass(sizes, best)) best = passes;
  }
  return best;
}

// Passes that the longest row decodes, at most.
int64_t MostLogPasses(const Plan& plan, const Workload& work) {
  int64_t tokens = work.longest.max_new_tokens;
  for (const RequestShape& row : work.sample) tokens = std::max(tokens, row.max_new_tokens);
  return std::min(plan.policy.most_log_passes, tokens);
}

}  // namespace

GridOrder OrderOf(const Plan& plan) {
  const StagedRows staged = StagedRowsOf(plan);
  const bool moves = staged.kv_slots > 0 || staged.hidden_bytes > 0 || plan.AttendsBeside();
  return moves && plan.num_batches > 1 ? GridOrder::kByDecoderLayer : GridOrder::kByLayer;
}

void PlaceRows(Plan& plan, ArenaLayouts& arenas) {
  for (const Tier tier : kAllTiers) {
    RowShare& kv = plan.kv[tier];
    RowShare& hidden = plan.hidden[tier];
    // Regions on disk are files of their own.
    kv.region = arenas[tier].Take(plan.num_batches * plan.kv_begin[tier].back() * plan.slot_bytes);
    hidden.region = arenas[tier].Take(plan.num_batches * HiddenShareBytes(plan, tier));
  }
  const StagedRows staged = StagedRowsOf(plan);
  plan.kv_staging.tier = plan.policy.cpu_attention ? Tier::kCpu : plan.device();
  plan.hidden_staging.tier = plan.device();
  for (std::size_t slot = 0; slot < plan.kv_staging.slots.size(); ++slot) {
    plan.kv_staging.slots[slot] =
        arenas[plan.kv_staging.tier].TakeBlocks(staged.kv_slots * plan.slot_bytes);
    plan.hidden_staging.slots[slot] = arenas[plan.device()].TakeBlocks(staged.hidden_bytes);
  }
}

void PlacePrefix(Plan& plan, ArenaLayout& device) {
  PrefixPlan& prefix = plan.prefix;
  if (prefix.tokens.empty()) return;
  prefix.kv = device.Take(plan.shape.num_layers * prefix.num_tokens() * plan.PromptSlotBytes());
  if (UsesScores(plan.kept.kind))
    prefix.scores =
        device.TakeFloats(plan.shape.num_layers * plan.shape.num_heads, prefix.num_tokens());
  prefix.hidden = device.Take(prefix.num_tokens() * plan.HiddenRowBytes());
}

void PlaceKvLog(Plan& plan, const Workload& work, ArenaLayout& arena) {
  const bool on_cpu = plan.kv_staging.tier == Tier::kCpu;
  if (!UsesScores(plan.kept.kind) || !on_cpu || plan.kv[Tier::kDisk].rows == 0) return;
  const int64_t row_tokens = plan.longest.slots();
  const int64_t slots = plan.RowSlots(Tier::kDisk, plan.LargestKvClass(row_tokens), row_tokens);
  const LogSizes sizes = {slots * plan.slot_bytes,
                          RoundUp(KvStateBytes(plan.RunHeads(), slots), kTileAlignBytes),
                          RoundUp(plan.PromptSlotBytes(), kTileAlignBytes)};
  KvLogPlan& log = plan.kv_log;
  log.passes = PassesOfALog(sizes, MostLogPasses(plan, work));
  if (!log.exists()) return;
  log.rows = plan.kv[Tier::kDisk].rows;
  log.state_bytes = sizes.state_bytes;
  log.token_bytes = sizes.token_bytes;
  for (Region& slot : log.staging) slot = arena.TakeBlocks(log.StagingBytes());
}

double KvLogPlan::MeanBytes() const {
  return static_cast<double>(rows) * BytesOfAPass({0, state_bytes, token_bytes}, passes);
}

}  // namespace spillway
