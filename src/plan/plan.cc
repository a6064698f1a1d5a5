#include "spillway/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "spillway/reference_prompt.h"
#include "spillway/round.h"
#include "spillway/tile.h"
#include "src/base/bisect.h"
#include "src/base/size_text.h"
#include "src/plan/cap_words.h"
#include "src/plan/place_weights.h"

namespace spillway {
namespace {

constexpr int64_t kAlignBytes = 64;  // a cache line

// A layer's load then hides behind the computes of two layers, of which one is an attention and one
// an MLP: with one layer ahead the disk rests in every MLP that outlasts an attention's load.
constexpr int64_t kWeightLookahead = 2;

constexpr int64_t kBounceChunks = 4;  // enough in flight for a disk (measured: 4 of 2 MiB)

// Logits of a text that is scored, computed at a time where the rows are fewer: enough for one read
// of the head's weights to pay, 13 MB with a vocabulary of 50k.
constexpr int64_t kScoredAtATime = 64;

// Hands out aligned runs of an arena that is only counted, not yet allocated.
class Cursor64 {
 public:
  explicit Cursor64(int64_t begin) : end_(begin) {}
  Region Take(int64_t bytes) {
    const Region region{end_, bytes};
    end_ += RoundUp(bytes, kAlignBytes);
    return region;
  }
  // For what a disk reads or writes.
  Region TakeBlocks(int64_t bytes) {
    if (bytes > 0) end_ = RoundUp(end_, kTileAlignBytes);
    return Take(RoundUp(bytes, kTileAlignBytes));
  }
  int64_t end() const { return end_; }

 private:
  int64_t end_;
};

// The sum of the `count` largest values, which is the most that a batch of that many rows can ask
// for.
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

// What one tier holds of a batch that is dealt so, so that any of the rows, whose sizes are those
// of the sample, fit, as many as the tier was dealt. A row beyond the sample may be longer than all
// of it: the tier with the most rows must at least hold that one alone.
RowShare ShareOf(Tier tier, const PerTier<int64_t>& dealt, const std::vector<int64_t>& sizes,
                 int64_t longest) {
  RowShare share;
  share.rows = dealt[tier];
  share.size = SumOfLargest(sizes, share.rows);
  const Tier roomiest = std::ranges::max(kAllTiers, {}, [&](Tier of) { return dealt[of]; });
  if (tier == roomiest) share.size = std::max(share.size, longest);
  return share;
}

// Blocks with equal budgets share a class.
void Classify(Plan& plan) {
  const std::vector<KvBudget>& budgets = plan.policy.kv.layer_budgets;
  const auto budget_of = [&](int64_t block) {
    return budgets.empty() ? plan.policy.kv.budget : budgets[static_cast<std::size_t>(block)];
  };
  for (int64_t block = 0; block < plan.shape.num_layers; ++block) {
    const auto same = std::ranges::find(plan.kv_classes, budget_of(block),
                                        [&](const KvClass& c) { return budget_of(c.first_block); });
    plan.kv_class_of.push_back(same - plan.kv_classes.begin());
    if (same == plan.kv_classes.end()) plan.kv_classes.push_back({block, {}});
  }
}

// Room for a batch's rows in each tier and class, and where each block's begins.
void SizeKv(Plan& plan, const Workload& work) {
  const PerTier<int64_t> dealt = DealRows(plan.batch.rows, plan.policy.kv_frac);
  for (std::size_t index = 0; index < plan.kv_classes.size(); ++index) {
    const auto kv_class = static_cast<int64_t>(index);
    for (const Tier tier : kAllTiers) {
      if (dealt[tier] == 0) continue;
      std::vector<int64_t> slots;
      for (const RequestShape& request : work.sample) {
        slots.push_back(plan.RowSlots(tier, kv_class, request.slots()));
      }
      const int64_t longest = plan.RowSlots(tier, kv_class, work.longest.slots());
      const RowShare share = ShareOf(tier, dealt, slots, longest);
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
    prompts.push_back(request.prompt_tokens);
    logits.push_back(request.prompt_logits);
  }
  plan.batch.logits =
      std::max(plan.batch.rows, std::min(kScoredAtATime, SumOfLargest(logits, plan.batch.rows)));
  const PerTier<int64_t> dealt = DealRows(plan.batch.rows, plan.policy.activation_frac);
  for (const Tier tier : kAllTiers) {
    plan.hidden[tier] = ShareOf(tier, dealt, prompts, work.longest.prompt_tokens);
    plan.batch.prompt_tokens += plan.hidden[tier].size;
  }
}

int64_t SlotBytes(const ModelShape& shape, const Policy& policy) {
  return (policy.kv.evicts() ? KvSlotBytesWithState : KvSlotBytes)(shape.num_kv_heads,
                                                                   shape.head_dim, policy.kv_bits);
}

PerTier<int64_t> SlotAlign(int64_t block_slots, int64_t slot_bytes) {
  const int64_t block_bytes = block_slots * slot_bytes;
  const int64_t blocks_on_disk = kTileAlignBytes / std::gcd(kTileAlignBytes, block_bytes);
  return {{block_slots, block_slots, block_slots * blocks_on_disk}};
}

// One arena per tier while it is laid out.
struct Cursors {
  Cursor64 gpu{0};
  Cursor64 cpu{0};
  Cursor64 disk{0};

  Cursor64& operator[](Tier tier) {
    return tier == Tier::kGpu ? gpu : tier == Tier::kCpu ? cpu : disk;
  }
};

// On disk hidden states take whole blocks.
int64_t HiddenShareBytes(const Plan& plan, Tier tier) {
  const int64_t bytes = plan.hidden[tier].size * plan.HiddenRowBytes();
  return tier == Tier::kDisk ? RoundUp(bytes, kHiddenBlockBytes) : bytes;
}

// Of a batch: what does not lie where it is computed on.
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

// By block, what batches move has longer to come, and staged weights take more room: worth it where
// there is more than one batch and KV or states of some do move, or the CPU attends to one batch
// while the GPU has the MLP of another.
GridOrder OrderOf(const Plan& plan) {
  const StagedRows staged = StagedRowsOf(plan);
  const bool moves = staged.kv_slots > 0 || staged.hidden_bytes > 0 || plan.AttendsBeside();
  return moves && plan.num_batches > 1 ? GridOrder::kByBlock : GridOrder::kByLayer;
}

void PlaceRows(Plan& plan, Cursors& arenas) {
  for (const Tier tier : kAllTiers) {
    RowShare& kv = plan.kv[tier];
    RowShare& hidden = plan.hidden[tier];
    // On disk the regions are files of their own.
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

// Of a row: whole, its state and a token.
struct LogSizes {
  int64_t row_bytes = 0;
  int64_t state_bytes = 0;
  int64_t token_bytes = 0;
};

// Read and written of a row in one pass, where it is written whole every `passes` passes.
double BytesOfAPass(const LogSizes& sizes, int64_t passes) {
  const auto between = static_cast<double>(passes - 1);
  const auto state = static_cast<double>(sizes.state_bytes);
  const auto token = static_cast<double>(sizes.token_bytes);
  // A pass reads each token since the row was written whole.
  const double log = between * (2.0 * state + token) + between * (between + 1.0) / 2.0 * token;
  const auto n = static_cast<double>(passes);
  return static_cast<double>(sizes.row_bytes) * (1.0 + 1.0 / n) + log / n;
}

// With which the fewest bytes are read and written.
int64_t PassesOfALog(const LogSizes& sizes, int64_t most) {
  int64_t best = 1;
  for (int64_t passes = 2; passes <= most; ++passes) {
    if (BytesOfAPass(sizes, passes) < BytesOfAPass(sizes, best)) best = passes;
  }
  return best;
}

// No longer than some row decodes.
int64_t MostLogPasses(const Plan& plan, const Workload& work) {
  int64_t tokens = work.longest.max_new_tokens;
  for (const RequestShape& row : work.sample) tokens = std::max(tokens, row.max_new_tokens);
  return std::min(plan.policy.most_log_passes, tokens);
}

void PlaceKvLog(Plan& plan, const Workload& work, Cursor64& arena) {
  const bool on_cpu = plan.kv_staging.tier == Tier::kCpu;
  if (!plan.policy.kv.evicts() || !on_cpu || plan.kv[Tier::kDisk].rows == 0) return;
  const int64_t row_tokens = plan.longest.slots();
  const int64_t slots = plan.RowSlots(Tier::kDisk, plan.LargestKvClass(row_tokens), row_tokens);
  const LogSizes sizes = {slots * plan.slot_bytes,
                          RoundUp(KvStateBytes(plan.shape.num_kv_heads, slots), kTileAlignBytes),
                          RoundUp(plan.PromptSlotBytes(), kTileAlignBytes)};
  KvLogPlan& log = plan.kv_log;
  log.passes = PassesOfALog(sizes, MostLogPasses(plan, work));
  if (!log.exists()) return;
  log.rows = plan.kv[Tier::kDisk].rows;
  log.state_bytes = sizes.state_bytes;
  log.token_bytes = sizes.token_bytes;
  for (Region& slot : log.staging) slot = arena.TakeBlocks(log.StagingBytes());
}

int64_t LongestDiskTile(const Plan& plan) {
  int64_t longest = 0;
  for (const PlannedLayer& layer : plan.layers) {
    for (const PlannedTensor& tensor : layer.tensors) {
      for (const WeightTile& tile : tensor.tiles) {
        if (tile.tier == Tier::kDisk) longest = std::max(longest, TileBytes(tensor.spec, tile));
      }
    }
  }
  return longest;
}

BounceRing TakeRing(int64_t longest_move, Cursor64& arena) {
  if (longest_move == 0) return {};
  const int64_t chunk_bytes = RoundUp(longest_move, kTileAlignBytes);
  return {arena.TakeBlocks(kBounceChunks * chunk_bytes), kBounceChunks};
}

// Bytes between disk and a device that is not the CPU cross in chunks through CPU memory. KV that
// the CPU attends to does not: it is read to where it is attended to.
void PlaceBounce(Plan& plan, Cursors& arenas) {
  if (plan.device() == Tier::kCpu) return;
  int64_t longest_rows = 0;
  if (plan.kv[Tier::kDisk].region.bytes > 0 && plan.kv_staging.tier != Tier::kCpu) {
    longest_rows = std::max(kRunBytes, plan.KvBlockBytes(Tier::kDisk));
  }
  if (plan.hidden[Tier::kDisk].region.bytes > 0) {
    longest_rows = std::max({longest_rows, kRunBytes, kHiddenBlockBytes});
  }
  plan.bounce.weights_in = TakeRing(LongestDiskTile(plan), arenas.cpu);
  plan.bounce.rows_in = TakeRing(longest_rows, arenas.cpu);
  plan.bounce.rows_out = TakeRing(longest_rows, arenas.cpu);
}

// Prompts lie within a chunk, or are cut by its begin or its end.
PromptKvPlan PlacePromptKv(const Plan& plan, int64_t chunk_tokens, Cursor64& arena) {
  PromptKvPlan prompt;
  prompt.align = KvBlockSlots(plan.policy.kv_bits);
  prompt.longest_slots = RoundUp(plan.longest.prompt_tokens, prompt.align);
  prompt.chunk_slots = chunk_tokens + (prompt.align - 1) * std::min(chunk_tokens, plan.batch.rows);
  prompt.kv = arena.Take(prompt.slots() * plan.PromptSlotBytes());
  if (plan.policy.kv.evicts() && plan.policy.kv.kind != KvPolicyKind::kWindow) {
    prompt.scores = arena.Take(prompt.slots() * plan.shape.num_heads * int64_t{sizeof(float)});
  }
  return prompt;
}

// Rows of a layer's buffers: the head has those of logits at once, other layers a chunk.
int64_t BufferRows(const Plan& plan, const PlannedLayer& layer, int64_t chunk_tokens) {
  return layer.part == ComputePart::kHead ? plan.batch.logits : chunk_tokens;
}

// The longest rows that a layer multiplies.
int64_t LongestIn(const Plan& plan, const PlannedLayer& layer) {
  int64_t longest = 0;
  for (const Op& op : layer.ops) {
    if (const auto* linear = std::get_if<Linear>(&op))
      longest = std::max(longest, plan.Tensor(linear->weight).spec.cols);
  }
  return longest;
}

int64_t MatmulBytes(const Plan& plan, const KernelNeeds& needs, int64_t chunk_tokens) {
  int64_t bytes = 0;
  for (const PlannedLayer& layer : plan.layers) {
    bytes = std::max(bytes, needs.matmul_bytes(BufferRows(plan, layer, chunk_tokens),
                                               LongestIn(plan, layer), plan.machine.num_threads));
  }
  return bytes;
}

// Each buffer behind those placed before it that some layer uses together with it.
void PlaceBuffers(const Plan& plan, WorkspacePlan& work, Cursor64& arena) {
  PerBuf<int64_t> bytes;
  std::array<PerBuf<bool>, kNumBufs> together{};
  for (const PlannedLayer& layer : plan.layers) {
    const bool gathers_states = layer.part == ComputePart::kHead;
    const std::vector<Buf> bufs = BufsOf(layer.ops);
    for (const Buf buf : bufs) {
      if (buf == Buf::kHidden && !gathers_states) continue;
      bytes[buf] = std::max(bytes[buf], BufferRows(plan, layer, work.chunk_tokens) *
                                            WidthOf(plan.shape, buf) * int64_t{sizeof(float)});
      for (const Buf other : bufs) together[static_cast<std::size_t>(buf)][other] = true;
    }
  }
  const int64_t begin = arena.end();
  int64_t end = begin;
  for (std::size_t at = 0; at < kNumBufs; ++at) {
    int64_t offset = begin;
    for (std::size_t before = 0; before < at; ++before) {
      const Region& other = work.buffers.values[before];
      if (together[at].values[before])
        offset = std::max(offset, other.offset + RoundUp(other.bytes, kAlignBytes));
    }
    work.buffers.values[at] = {offset, bytes.values[at]};
    end = std::max(end, offset + RoundUp(bytes.values[at], kAlignBytes));
  }
  arena.Take(end - begin);
}

WorkspacePlan PlaceWorkspace(const Plan& plan, const KernelNeeds& needs, Cursor64& arena) {
  WorkspacePlan work;
  work.chunk_tokens = std::clamp<int64_t>(plan.policy.prefill_chunk, 1,
                                          std::max(plan.batch.prompt_tokens, plan.batch.rows));
  work.matmul = arena.Take(MatmulBytes(plan, needs, work.chunk_tokens));
  const bool evicts = plan.policy.kv.evicts();
  work.attention = arena.Take((evicts ? needs.eviction_bytes : needs.attention_bytes)(
      RoundUp(plan.longest.slots() + 1, KvBlockSlots(plan.policy.kv_bits)), plan.shape.head_dim,
      plan.machine.num_threads));
  if (evicts || plan.AttendsBeside()) work.prompt = PlacePromptKv(plan, work.chunk_tokens, arena);
  PlaceBuffers(plan, work, arena);
  return work;
}

// What lives outside the arenas: for KV below 16 bits the reference prompt, unless the executor has
// it in its exchange; for the disk tier tags of blocks, the queue of requests, the store's table.
int64_t TableBytes(const Plan& plan, const KernelNeeds& needs) {
  const bool has_reference = plan.policy.kv_bits < 16 && needs.exchange == nullptr;
  const int64_t reference = has_reference ? ReferenceBytesOf(plan.shape).total() : 0;
  if (plan.arena_bytes[Tier::kDisk] == 0) return reference;
  constexpr int64_t kTagBytes = 16;
  constexpr int64_t kTileEntryBytes = 48;
  constexpr int64_t kQueueBytes = 1 << 20;
  const int64_t blocks = plan.kv[Tier::kDisk].region.bytes / plan.KvBlockBytes(Tier::kDisk) +
                         plan.hidden[Tier::kDisk].region.bytes / kHiddenBlockBytes +
                         plan.num_batches * plan.shape.num_layers * plan.kv_log.NumBlocks();
  const int64_t tiles = plan.arena_bytes[Tier::kDisk] / (1 << 20);
  return reference + blocks * kTagBytes + tiles * kTileEntryBytes + kQueueBytes;
}

// Shorter ones save little memory and make products slow.
constexpr int64_t kLeastChunk = 64;

// The block refused, but for batches that it has no rows for.
Policy RefusedBlock(const Plan& refused) {
  Policy policy = refused.policy;
  policy.gpu_batch_size = refused.batch.rows;
  policy.num_gpu_batches = refused.num_batches;
  return policy;
}

// Powers of two.
std::vector<Policy> ShorterChunks(const Plan& refused) {
  std::vector<Policy> chunks;
  Policy policy = RefusedBlock(refused);
  const auto fewer = static_cast<uint64_t>(refused.workspace.chunk_tokens - 1);
  for (auto chunk = static_cast<int64_t>(std::bit_floor(fewer)); chunk >= kLeastChunk; chunk /= 2) {
    policy.prefill_chunk = chunk;
    chunks.push_back(policy);
  }
  return chunks;
}

// The block halved again and again, batches first.
std::vector<Policy> SmallerBlocks(const Plan& refused, int64_t prefill_chunk) {
  std::vector<Policy> blocks;
  Policy policy = RefusedBlock(refused);
  policy.prefill_chunk = prefill_chunk;
  while (policy.gpu_batch_size * policy.num_gpu_batches > 1) {
    (policy.num_gpu_batches > 1 ? policy.num_gpu_batches : policy.gpu_batch_size) /= 2;
    blocks.push_back(policy);
  }
  return blocks;
}

// Weights, KV and activations.
using Shares = std::array<PerTier<double>, 3>;

// The policy's where they are stated. Otherwise a smaller block's are chosen anew, and fit where
// some in whole tiers do (default_policy.h).
std::vector<Shares> SharesToTry(const Plan& refused) {
  const Policy& policy = refused.policy;
  if (policy.placement_is_stated) {
    return {Shares{policy.weight_frac, policy.kv_frac, policy.activation_frac}};
  }
  std::vector<Shares> shares;
  const PerTier<int64_t>& caps = refused.machine.cap_bytes;
  for (const Tier weights : kAllTiers) {
    if (caps[weights] < refused.WeightBytes()) continue;
    for (const Tier kv : kAllTiers) {
      for (const Tier activations : kAllTiers) {
        if (caps[kv] == 0 || caps[activations] == 0) continue;
        shares.push_back({AllOn(weights), AllOn(kv), AllOn(activations)});
      }
    }
  }
  return shares;
}

// A plan that does not fit, and what it was made of.
struct Refused {
  const Model& model;
  const Plan& plan;
  const Workload& work;
  const KernelNeeds& needs;
};

// The first that fits of policies that each take less memory than the one before; nullopt when
// none does.
std::optional<Policy> FirstFitting(const std::vector<Policy>& policies, const Refused& refused) {
  std::size_t nearest = policies.size();
  for (const auto& [weights, kv, activations] : SharesToTry(refused.plan)) {
    const auto fits = [&](std::size_t at) {
      Policy policy = policies[at];
      policy.weight_frac = weights;
      policy.kv_frac = kv;
      policy.activation_frac = activations;
      return Fits(LayOut(refused.model, refused.plan.machine, refused.work, policy, refused.needs));
    };
    // A layout of 175 billion weights takes milliseconds: most shares are tried once, with the
    // last policy before what is found.
    if (nearest == 0 || !fits(nearest - 1)) continue;
    nearest = FirstThatHolds(0, nearest - 1, fits);
  }
  return nearest == policies.size() ? std::nullopt : std::optional(policies[nearest]);
}

bool IsOver(const Plan& plan, Tier tier) {
  return plan.PlannedBytes(tier) > plan.machine.cap_bytes[tier];
}

// "--cpu-memory 9MiB": the flags with which the tier's cap is what is planned.
std::string CapFor(const Plan& plan, Tier tier) {
  const int64_t outside = tier == Tier::kGpu ? plan.machine.gpu_used_bytes : 0;
  const int64_t bytes = plan.PlannedBytes(tier) + outside;
  return fmt::format("{} {}MiB", CapWordsOf(plan.machine, tier).flags,
                     (bytes + (1 << 20) - 1) >> 20);
}

// Every tier that is short: more of one alone would be refused for the next. At least, because what
// is planned before the input is read is one row of two tokens.
std::string LargerCaps(const Plan& plan) {
  std::vector<std::string> caps;
  for (const Tier tier : kAllTiers) {
    if (IsOver(plan, tier)) caps.push_back(CapFor(plan, tier));
  }
  return fmt::format("give at least {}", fmt::join(caps, " and "));
}

// "--gpu-batch-size 8 --num-gpu-batches 1 fits": what differs.
std::string FlagsThatFit(const Plan& refused, const Policy& fitting) {
  std::vector<std::string> flags;
  if (fitting.gpu_batch_size != refused.batch.rows ||
      fitting.num_gpu_batches != refused.num_batches) {
    flags.push_back(fmt::format("--gpu-batch-size {} --num-gpu-batches {}", fitting.gpu_batch_size,
                                fitting.num_gpu_batches));
  }
  if (fitting.prefill_chunk != refused.policy.prefill_chunk)
    flags.push_back(fmt::format("--prefill-chunk {}", fitting.prefill_chunk));
  return fmt::format("{} fits", fmt::join(flags, " "));
}

// The nearest change that fits: a shorter chunk, which costs least, a smaller block, both.
std::string RemedyFor(const Refused& refused) {
  const Plan& plan = refused.plan;
  const auto fitting = [&](const std::vector<Policy>& policies) {
    return FirstFitting(policies, refused);
  };
  const int64_t chunk = plan.policy.prefill_chunk;
  std::optional<Policy> smaller = fitting(ShorterChunks(plan));
  if (!smaller) smaller = fitting(SmallerBlocks(plan, chunk));
  if (!smaller && chunk > kLeastChunk) smaller = fitting(SmallerBlocks(plan, kLeastChunk));
  return smaller ? FlagsThatFit(plan, *smaller) : LargerCaps(plan);
}

Plan LayOutOnce(const Model& model, const Machine& machine, const Workload& work,
                const Policy& policy, const KernelNeeds& needs) {
  Plan plan;
  plan.shape = model.shape;
  plan.machine = machine;
  plan.policy = policy;
  plan.num_requests = work.num_requests;
  plan.slot_bytes = SlotBytes(plan.shape, policy);
  plan.slot_align = SlotAlign(KvBlockSlots(policy.kv_bits), plan.slot_bytes);
  plan.batch.rows = std::max<int64_t>(1, std::min(policy.gpu_batch_size, work.num_requests));
  plan.longest = work.longest;
  Classify(plan);
  SizeKv(plan, work);
  SPILLWAY_CHECK(!plan.AttendsBeside() || plan.kv[Tier::kGpu].rows == 0);
  SizeHidden(plan, work);
  // A last block of fewer batches needs no place for the others.
  plan.num_batches = std::clamp<int64_t>(
      (work.num_requests + plan.batch.rows - 1) / plan.batch.rows, 1, policy.num_gpu_batches);

  plan.order = OrderOf(plan);
  plan.weight_lookahead = kWeightLookahead;

  Cursors arenas;
  PlacedWeights weights =
      PlaceWeights(model, policy.weight_frac, plan.device(), {plan.order, plan.weight_lookahead});
  for (const Tier tier : kAllTiers) arenas[tier].Take(weights.arena_bytes[tier]);
  plan.weight_bytes = weights.bytes;
  plan.layers = std::move(weights.layers);
  plan.weight_staging = arenas[plan.device()].TakeBlocks(weights.staging_bytes);
  PlaceStaging(plan.layers, plan.device(), plan.weight_staging.offset);
  PlaceRows(plan, arenas);
  PlaceKvLog(plan, work, arenas.cpu);
  arenas.disk.Take(plan.KvLogBytes());
  plan.workspace = PlaceWorkspace(plan, needs, arenas[plan.device()]);
  PlaceBounce(plan, arenas);
  if (needs.exchange != nullptr) {
    const ExchangeBytes bytes = needs.exchange(plan);
    plan.exchange.device = arenas[plan.device()].Take(bytes.device);
    plan.exchange.host = arenas.cpu.TakeBlocks(bytes.host);
  }
  for (const Tier tier : kAllTiers) plan.arena_bytes[tier] = arenas[tier].end();
  plan.table_bytes = TableBytes(plan, needs);
  return plan;
}

}  // namespace

Plan LayOut(const Model& model, const Machine& machine, const Workload& work, const Policy& policy,
            const KernelNeeds& needs) {
  Plan plan = LayOutOnce(model, machine, work, policy, needs);
  while (plan.kv_log.exists() && !Fits(plan)) {
    Policy shorter = policy;
    shorter.most_log_passes = std::max<int64_t>(1, plan.kv_log.passes / 2);
    plan = LayOutOnce(model, machine, work, shorter, needs);
  }
  return plan;
}

int64_t Plan::KvBytes() const {
  int64_t slots = 0;
  for (const Tier tier : kAllTiers) slots += kv_begin[tier].back();
  return slots * slot_bytes * num_batches;
}

double KvLogPlan::MeanBytes() const {
  return static_cast<double>(rows) * BytesOfAPass({0, state_bytes, token_bytes}, passes);
}

int64_t Plan::KvLogBytes() const { return num_batches * shape.num_layers * kv_log.StagingBytes(); }

int64_t Plan::WeightBytes() const {
  return std::accumulate(weight_bytes.values.begin(), weight_bytes.values.end(), int64_t{0});
}

KvKeep Plan::RowKeep(int64_t kv_class, int64_t row_tokens) const {
  return KeepOf(policy.kv, kv_classes[static_cast<std::size_t>(kv_class)].first_block, row_tokens);
}

int64_t Plan::RowSlots(Tier tier, int64_t kv_class, int64_t row_tokens) const {
  return RoundUp(std::min(row_tokens, RowKeep(kv_class, row_tokens).slots() + 1), slot_align[tier]);
}

int64_t Plan::LargestKvClass(int64_t row_tokens) const {
  int64_t largest = 0;
  for (int64_t kv_class = 1; kv_class < std::ssize(kv_classes); ++kv_class) {
    // Which tier's rounding is taken does not matter: disk's is a multiple of memory's.
    const auto slots = [&](int64_t of) { return RowSlots(Tier::kCpu, of, row_tokens); };
    if (slots(kv_class) > slots(largest)) largest = kv_class;
  }
  return largest;
}

KvKeep Plan::MostRowKeep(int64_t row_tokens) const {
  return RowKeep(LargestKvClass(row_tokens), row_tokens);
}

int64_t Plan::MostRowSlots(int64_t row_tokens) const {
  int64_t most = 0;
  for (const Tier tier : kAllTiers) {
    if (kv[tier].rows == 0) continue;
    most = std::max(most, RowSlots(tier, LargestKvClass(row_tokens), row_tokens));
  }
  return most;
}

int64_t Plan::KvSlots(Tier tier, int64_t block) const {
  const auto at = static_cast<std::size_t>(block);
  return kv_begin[tier][at + 1] - kv_begin[tier][at];
}

int64_t Plan::KvOffset(Tier tier, int64_t batch, int64_t block) const {
  const std::vector<int64_t>& begin = kv_begin[tier];
  return (batch * begin.back() + begin[static_cast<std::size_t>(block)]) * slot_bytes;
}

bool Fits(const Plan& plan) {
  return std::ranges::none_of(kAllTiers, [&](Tier tier) { return IsOver(plan, tier); });
}

Plan MakePlan(const Model& model, const Machine& machine, const Workload& work,
              const Policy& policy, const KernelNeeds& needs) {
  Plan plan = LayOut(model, machine, work, policy, needs);
  if (Fits(plan)) return plan;

  const Tier tier =
      *std::ranges::find_if(kAllTiers, [&](Tier candidate) { return IsOver(plan, candidate); });
  const CapWords words = CapWordsOf(machine, tier);
  const int64_t needed = plan.PlannedBytes(tier);
  const int64_t kv_bytes = plan.kv[tier].region.bytes;
  const int64_t rows_bytes = kv_bytes + plan.hidden[tier].region.bytes;
  // On disk the store of all weights, whatever memory holds of them.
  const int64_t weight_bytes = tier == Tier::kDisk ? needed - rows_bytes : plan.weight_bytes[tier];
  throw Error(
      words.code,
      fmt::format("needs {} of {} (weights {}, KV {}, activations and buffers {}), {} "
                  "available; {}",
                  SizeText(needed), words.noun, SizeText(weight_bytes), SizeText(kv_bytes),
                  SizeText(needed - weight_bytes - kv_bytes), SizeText(machine.cap_bytes[tier]),
                  RemedyFor({model, plan, work, needs})));
}

}  // namespace spillway
