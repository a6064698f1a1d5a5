#include "src/plan/place_workspace.h"

#include <algorithm>
#include <array>
#include <vector>

#include "spillway/expert_gather.h"
#include "spillway/kv_block.h"
#include "spillway/reference_prompt.h"
#include "spillway/round.h"

namespace spillway {
namespace {

constexpr int64_t kBounceChunks = 4;  // enough in flight for a disk (measured: 4 of 2 MiB)

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

BounceRing TakeRing(int64_t longest_move, ArenaLayout& arena) {
  if (longest_move == 0) return {};
  const int64_t chunk_bytes = RoundUp(longest_move, kTileAlignBytes);
  return {arena.TakeBlocks(kBounceChunks * chunk_bytes), kBounceChunks};
}

// Bytes between disk and a device that is not the CPU cross in chunks through CPU memory. KV that
// the CPU attends to does not: it is read to where it is attended to.
void PlaceBounce(Plan& plan, ArenaLayouts& arenas) {
  if (plan.device() == Tier::kCpu) return;
  int64_t longest_rows = 0;
  if (plan.kv[Tier::kDisk].region.bytes > 0 && plan.kv_staging.tier != Tier::kCpu) {
    longest_rows = std::max(kRunBytes, plan.KvBlockBytes(Tier::kDisk));
  }
  if (plan.hidden[Tier::kDisk].region.bytes > 0) {
    longest_rows = std::max({longest_rows, kRunBytes, kHiddenBlockBytes});
  }
  plan.bounce.weights_in = TakeRing(LongestDiskTile(plan), arenas[Tier::kCpu]);
  plan.bounce.rows_in = TakeRing(longest_rows, arenas[Tier::kCpu]);
  plan.bounce.rows_out = TakeRing(longest_rows, arenas[Tier::kCpu]);
}

// Prompts lie within a chunk, or are cut by its begin or its end.
PromptKvPlan PlacePromptKv(const Plan& plan, int64_t chunk_tokens, ArenaLayout& arena) {
  PromptKvPlan prompt;
  prompt.align = KvBlockSlots(plan.policy.kv_bits);
  prompt.longest_slots = RoundUp(plan.longest.fed_tokens(), prompt.align);
  prompt.prefix_tokens = plan.longest.prefix_tokens;
  prompt.chunk_prompts = std::min(chunk_tokens, plan.batch.rows);
  prompt.chunk_slots = chunk_tokens + (prompt.align - 1) * std::min(chunk_tokens, plan.batch.rows);
  prompt.kv = arena.Take(prompt.slots() * plan.PromptSlotBytes());
  if (UsesScores(plan.kept.kind)) {
    prompt.scores = arena.TakeFloats(plan.shape.num_heads, prompt.columns());
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
  for (const Linear* linear : ProductsOf(layer.ops))
    longest = std::max(longest, plan.Tensor(linear->weight).spec.cols);
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
void PlaceBuffers(const Plan& plan, WorkspacePlan& work, ArenaLayout& arena) {
  PerBuf<int64_t> bytes;
  std::array<PerBuf<bool>, kNumBufs> together{};
  for (const PlannedLayer& layer : plan.layers) {
    const bool gathers_states = layer.part == ComputePart::kHead;
    const std::vector<Buf> bufs = BufsOf(layer.ops);
    for (const Buf buf : bufs) {
      if (IsState(buf) && !gathers_states) continue;
      bytes[buf] = std::max(bytes[buf], BufferRows(plan, layer, work.chunk_tokens) *
                                            plan.StrideOf(buf) * int64_t{sizeof(float)});
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
        offset = std::max(offset, other.offset + RoundUp(other.bytes, kArenaAlignBytes));
    }
    work.buffers.values[at] = {offset, bytes.values[at]};
    end = std::max(end, offset + RoundUp(bytes.values[at], kArenaAlignBytes));
  }
  arena.Take(end - begin);
}

// Of a policy that evicts: slots that a row's attention reads at once, those of a whole prompt or
// of the largest cache.
int64_t MostSlots(const Plan& plan) {
  return std::max(plan.longest.prompt_tokens, plan.MostRunSlots(plan.longest.slots()));
}

WorkspacePlan WorkspaceOf(const Plan& plan, const KernelNeeds& needs, ArenaLayout& arena) {
  WorkspacePlan work;
  work.chunk_tokens = std::clamp<int64_t>(
      plan.policy.prefill_chunk, 1,
      std::max({plan.batch.prompt_tokens, plan.batch.rows, plan.prefix.num_tokens()}));
  work.matmul = arena.Take(MatmulBytes(plan, needs, work.chunk_tokens));
  const bool evicts = plan.kept.evicts();
  const int64_t slots = evicts ? MostSlots(plan) : plan.CachePrefix() + plan.longest.slots();
  work.attention = arena.Take((evicts ? needs.eviction_bytes : needs.attention_bytes)(
      RoundUp(slots + 1, KvBlockSlots(plan.policy.kv_bits)), plan.shape.head_dim,
      plan.machine.num_threads));
  if (evicts || plan.AttendsBeside()) work.prompt = PlacePromptKv(plan, work.chunk_tokens, arena);
  if (plan.kept.rolls) {
    work.turn_rows = MostSlots(plan) + 1;
    work.key_turns = arena.TakeFloats(work.turn_rows, plan.shape.rope.dims);
  }
  if (plan.centres_keys) {
    const int64_t width = plan.shape.head_dim;
    work.mean_spans = KeyMeanSpans(plan.CachePrefix() + plan.longest.slots());
    work.span_turns = arena.TakeFloats(std::ssize(RopesOf(plan.layers)) * work.mean_spans, width);
    work.key_means = arena.TakeFloats(plan.shape.num_kv_heads * work.mean_spans, width);
  }
  PlaceBuffers(plan, work, arena);
  return work;
}

// Bytes in which tokens are sorted by their experts: of each two addresses, and of each of its
// choices another one and a weight.
int64_t ExpertListBytes(const Plan& plan) {
  if (plan.shape.experts.num == 0) return 0;
  return MostGathered(plan) * (16 + 12 * plan.shape.experts.slots());
}

}  // namespace

void PlaceWorkspace(Plan& plan, const KernelNeeds& needs, ArenaLayouts& arenas) {
  plan.workspace = WorkspaceOf(plan, needs, arenas[plan.device()]);
  PlaceBounce(plan, arenas);
  if (needs.exchange == nullptr) return;
  const ExchangeBytes bytes = needs.exchange(plan);
  plan.exchange.device = arenas[plan.device()].Take(bytes.device);
  plan.exchange.host = arenas[Tier::kCpu].TakeBlocks(bytes.host);
}

int64_t TableBytes(const Plan& plan, const KernelNeeds& needs) {
  const bool has_reference = plan.HasReference() && needs.exchange == nullptr;
  const int64_t memory =
      (has_reference ? ReferenceBytesOf(plan.shape).total() : 0) + ExpertListBytes(plan);
  if (plan.arena_bytes[Tier::kDisk] == 0) return memory;
  constexpr int64_t kTagBytes = 16;
  constexpr int64_t kTileEntryBytes = 48;
  constexpr int64_t kQueueBytes = 1 << 20;
  const int64_t blocks = plan.kv[Tier::kDisk].region.bytes / plan.KvBlockBytes(Tier::kDisk) +
                         plan.hidden[Tier::kDisk].region.bytes / kHiddenBlockBytes +
                         plan.num_batches * plan.shape.num_layers * plan.kv_log.NumBlocks();
  const int64_t tiles = plan.arena_bytes[Tier::kDisk] / (1 << 20);
  return memory + blocks * kTagBytes + tiles * kTileEntryBytes + kQueueBytes;
}

}  // namespace spillway
