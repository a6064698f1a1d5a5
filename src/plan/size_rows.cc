#include "src/plan/size_rows.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "spillway/tile.h"

namespace spillway {
namespace {

// Tokens of a scored text whose logits are computed at a time, where the rows are fewer: enough for
// one read of the head's weights to pay, 13 MB with a vocabulary of 50k.
constexpr int64_t kScoredAtATime = 64;

// Sum of the `count` largest values: the most that a batch of that many rows can ask for.
int64_t SumOfLargest(std::vector<int64_t> values, int64_t count) {
  const auto kept =
      static_cast<std::size_t>(std::min<int64_t>(count, static_cast<int64_t>(values.size())));
  std::partial_sort(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(kept),
                    values.end(), std::greater<>());
  return std::accumulate(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(kept),
                         int64_t{0});
}

// `rows` dealt to the tiers by largest remainder.
PerTier<int64_t> DealRows(int64_t rows, const PerTier<double>& frac) {
  PerTier<int64_t> dealt;
  int64_t left = rows;
  for (const Tier tier : kAllTiers) {
    dealt[tier] = static_cast<int64_t>(frac[tier] * static_cast<double>(rows) + 1e-9);
    left -= dealt[tier];
  }
  while (left-- > 0) {
    const auto lacking = [&](Tier tier) {
      return frac[tier] * static_cast<double>(rows) - static_cast<double>(dealt[tier]);
    };
    ++dealt[std::ranges::max(kAllTiers, {}, lacking)];
  }
  return dealt;
}

// Rows of the sample that have one number of tokens.
struct AlikeRows {
  int64_t tokens;
  int64_t count;
};

// Those with most tokens first.
std::vector<AlikeRows> LongestFirst(std::vector<int64_t> tokens) {
  std::ranges::sort(tokens, std::greater<>());
  std::vector<AlikeRows> rows;
  for (const int64_t of_row : tokens) {
    if (rows.empty() || rows.back().tokens != of_row) rows.push_back({of_row, 0});
    ++rows.back().count;
  }
  return rows;
}

// Room of one tier for its share of a batch, so that any of the rows fit, as many as the tier was
// dealt; their sizes are those of the sample, by size_of(tokens), which never falls as tokens rise.
// A row beyond the sample may be longer than all of it: the tier with the most rows must at least
// hold that one alone.
template <typename F>
RowShare ShareOf(Tier tier, const PerTier<int64_t>& dealt, const std::vector<AlikeRows>& sample,
                 int64_t longest, F size_of) {
  RowShare share;
  share.rows = dealt[tier];
  int64_t left = share.rows;
  for (const AlikeRows& rows : sample) {
    const int64_t count = std::min(rows.count, left);
    if (count == 0) break;
    share.size += count * size_of(rows.tokens);
    left -= count;
  }
  const Tier roomiest = std::ranges::max(kAllTiers, {}, [&](Tier of) { return dealt[of]; });
  if (tier == roomiest) share.size = std::max(share.size, size_of(longest));
  return share;
}

// Blocks with equal budgets and windows share a class.
void Classify(Plan& plan) {
  const auto limits_of = [&](int64_t decoder_layer) {
    const auto at = static_cast<std::size_t>(decoder_layer);
    const KvPolicy& kept = plan.kept;
    return std::tuple(kept.layer_budgets.empty() ? kept.budget : kept.layer_budgets[at],
                      kept.head_budgets.empty() ? std::vector<KvBudget>() : kept.head_budgets[at],
                      kept.layer_windows.empty() ? 0 : kept.layer_windows[at]);
  };
  for (int64_t decoder_layer = 0; decoder_layer < plan.shape.num_layers; ++decoder_layer) {
    const auto same =
        std::ranges::find(plan.kv_classes, limits_of(decoder_layer),
                          [&](const KvClass& c) { return limits_of(c.first_decoder_layer); });
    plan.kv_class_of.push_back(same - plan.kv_classes.begin());
    if (same == plan.kv_classes.end()) plan.kv_classes.push_back({decoder_layer, {}});
  }
}

// Room for a batch's rows in each tier and class, and where each block's begins.
void SizeKv(Plan& plan, const Workload& work, const std::vector<AlikeRows>& sample) {
  const PerTier<int64_t> dealt = DealRows(plan.batch.rows, plan.policy.kv_frac);
  for (std::size_t index = 0; index < plan.kv_classes.size(); ++index) {
    const auto kv_class = static_cast<int64_t>(index);
    for (const Tier tier : kAllTiers) {
      if (dealt[tier] == 0) continue;
      const RowShare share =
          ShareOf(tier, dealt, sample, work.longest.slots(),
                  [&](int64_t row_tokens) { return plan.RowSlots(tier, kv_class, row_tokens); });
      plan.kv_classes[index].slots[tier] = share.size;
      plan.kv[tier].rows = share.rows;
      plan.kv[tier].size = std::max(plan.kv[tier].size, share.size);
    }
  }
  for (const Tier tier : kAllTiers) {
    std::vector<int64_t>& begin = plan.kv_begin[tier];
    begin.assign(1, 0);
    for (const int64_t kv_class : plan.kv_class_of) {
      begin.push_back(begin.back() +
                      plan.kv_classes[static_cast<std::size_t>(kv_class)].slots[tier]);
    }
    plan.batch.slots += plan.kv[tier].size;
  }
}

void SizeHidden(Plan& plan, const Workload& work) {
  std::vector<int64_t> prompts;
  std::vector<int64_t> logits = {work.longest.prompt_logits};
  for (const RequestShape& request : work.sample) {
    prompts.push_back(request.fed_tokens());
    logits.push_back(request.prompt_logits);
  }
  plan.batch.logits =
      std::max(plan.batch.rows, std::min(kScoredAtATime, SumOfLargest(logits, plan.batch.rows)));
  const PerTier<int64_t> dealt = DealRows(plan.batch.rows, plan.policy.activation_frac);
  const std::vector<AlikeRows> sample = LongestFirst(std::move(prompts));
  for (const Tier tier : kAllTiers) {
    plan.hidden[tier] = ShareOf(tier, dealt, sample, work.longest.fed_tokens(), std::identity());
    plan.batch.prompt_tokens += plan.hidden[tier].size;
  }
}

int64_t SlotBytes(const Plan& plan) {
  return (plan.kept.evicts() ? KvSlotBytesWithState : KvSlotBytes)(
      plan.RunHeads(), plan.shape.head_dim, plan.policy.kv_bits);
}

// Blocks that begin at whole fractions of a page, and how many of them lie together on disk.
void FillBlocks(Plan& plan, int64_t fill) {
  const int64_t block_slots = KvBlockSlots(plan.policy.kv_bits);
  plan.kv_block_fill = fill;
  plan.slot_bytes = SlotBytes(plan) + fill / block_slots;
  const int64_t blocks_on_disk =
      kTileAlignBytes / std::gcd(kTileAlignBytes, block_slots * plan.slot_bytes);
  plan.slot_align = {{block_slots, block_slots, block_slots * blocks_on_disk}};
}

// Some rows of the sample, evenly spread over their lengths, that stand for all.
std::vector<AlikeRows> Spread(const std::vector<AlikeRows>& sample) {
  constexpr std::size_t kMost = 32;
  std::vector<AlikeRows> some;
  const std::size_t step = DivideUp(std::ssize(sample), int64_t{kMost});
  for (std::size_t at = 0; at < sample.size(); at += step) {
    some.push_back({sample[at].tokens, 0});
    for (std::size_t like = at; like < std::min(at + step, sample.size()); ++like)
      some.back().count += sample[like].count;
  }
  return some;
}

// What a distance between blocks costs.
class FillCost {
 public:
  FillCost(const Plan& plan, const PerTier<int64_t>& dealt, const std::vector<AlikeRows>& sample)
      : plan_(plan), dealt_(dealt) {
    for (int64_t kv_class = 0; kv_class < std::ssize(plan.kv_classes); ++kv_class) {
      const int64_t num_layers = std::ranges::count(plan.kv_class_of, kv_class);
      for (const AlikeRows& rows : Spread(sample))
        slots_.push_back(
            {plan.RowSlots(Tier::kCpu, kv_class, rows.tokens), rows.count * num_layers});
    }
  }

  // Bytes of the sample's rows that a pass moves, were each as likely in each tier as a batch's
  // rows are. Memory is scarcer than the disk: there, and of the disk's tags, a byte counts for
  // some. What is written beside what is read, of rows without scores (KvLogPlan), holds up little.
  double Of() const {
    constexpr double kMemoryByte = 4.0;
    const double written_byte = UsesScores(plan_.kept.kind) ? 0.0 : 0.125;
    constexpr int64_t kTagBytes = 16;  // of a block on disk
    const int64_t in_memory = dealt_[Tier::kGpu] + dealt_[Tier::kCpu];
    const int64_t together = plan_.slot_align[Tier::kDisk];
    double cost = 0.0;
    for (const auto& [row_slots, count] : slots_) {
      const int64_t on_disk = RoundUp(row_slots, together);
      const double memory =
          static_cast<double>(in_memory * row_slots * plan_.slot_bytes) * kMemoryByte;
      const double disk = static_cast<double>(on_disk * plan_.slot_bytes) +
                          static_cast<double>(together * plan_.slot_bytes) * written_byte +
                          static_cast<double>(on_disk / together * kTagBytes) * kMemoryByte;
      cost +=
          static_cast<double>(count) * (memory + static_cast<double>(dealt_[Tier::kDisk]) * disk);
    }
    return cost;
  }

 private:
  struct RowsInLayer {
    int64_t slots;  // of each, in whole blocks
    int64_t count;  // of rows, in each layer of a class
  };

  const Plan& plan_;
  const PerTier<int64_t>& dealt_;
  std::vector<RowsInLayer> slots_;
};

// Decides how far apart blocks begin. A row on disk ends with a page: with its blocks as they are,
// up to 128 of them would be needed to fill whole pages, and each row would be filled up to those.
// Rows in memory gain nothing: there a sixteenth more is the most. Requires: the plan's classes are
// known.
void ChooseFill(Plan& plan, const PerTier<int64_t>& dealt, const std::vector<AlikeRows>& sample) {
  FillBlocks(plan, plan.policy.kv_block_fill.value_or(0));
  if (plan.policy.kv_block_fill || dealt[Tier::kDisk] == 0) return;
  const int64_t block_bytes = KvBlockSlots(plan.policy.kv_bits) * plan.slot_bytes;
  const bool some_in_memory = dealt[Tier::kGpu] + dealt[Tier::kCpu] > 0;
  const int64_t most = some_in_memory ? block_bytes / 16 : kTileAlignBytes;
  constexpr int64_t kLeastStep = 64;  // of twice the bytes that every block is a multiple of
  const FillCost cost(plan, dealt, sample);
  int64_t best = 0;
  double least = cost.Of();
  for (int64_t step = kLeastStep; step <= kTileAlignBytes; step *= 2) {
    const int64_t fill = RoundUp(block_bytes, step) - block_bytes;
    if (fill > most) break;
    FillBlocks(plan, fill);
    const double of_fill = cost.Of();
    if (of_fill >= least) continue;
    least = of_fill;
    best = fill;
  }
  FillBlocks(plan, best);
}

std::vector<AlikeRows> RowsOf(const Workload& work) {
  std::vector<int64_t> tokens;
  for (const RequestShape& request : work.sample) tokens.push_back(request.slots());
  return LongestFirst(std::move(tokens));
}

}  // namespace

void SizeRows(Plan& plan, const Workload& work) {
  const Policy& policy = plan.policy;
  plan.num_requests = work.num_requests;
  plan.longest = work.longest;
  plan.batch.rows = std::max<int64_t>(1, std::min(policy.gpu_batch_size, work.num_requests));
  Classify(plan);
  const std::vector<AlikeRows> sample = RowsOf(work);
  ChooseFill(plan, DealRows(plan.batch.rows, policy.kv_frac), sample);
  SizeKv(plan, work, sample);
  SPILLWAY_CHECK(!plan.AttendsBeside() || plan.kv[Tier::kGpu].rows == 0);
  SizeHidden(plan, work);
  // A last block of fewer batches needs no place for the others.
  plan.num_batches = std::clamp<int64_t>(
      (work.num_requests + plan.batch.rows - 1) / plan.batch.rows, 1, policy.num_gpu_batches);
}

}  // namespace spillway
