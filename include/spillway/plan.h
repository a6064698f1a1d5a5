// Plan: every byte's place, decided before the first is allocated. The stage between Policy and
// Schedule. Plain values; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "spillway/grid.h"
#include "spillway/kv_block.h"
#include "spillway/kv_log_plan.h"
#include "spillway/kv_policy.h"
#include "spillway/machine.h"
#include "spillway/model.h"
#include "spillway/policy.h"
#include "spillway/region.h"
#include "spillway/round.h"
#include "spillway/tier.h"
#include "spillway/tile.h"
#include "spillway/workload.h"

namespace spillway {

// Output features [row_begin, row_end) of a tensor, in one tier.
struct WeightTile {
  Tier tier = Tier::kCpu;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t offset =
      0;  // in the tier's arena; on disk: which tile of the tensor, counted as tile.h cuts it
  int64_t place =
      0;  // in the device's arena while its layer is computed; == offset where it lies there
};

inline int64_t TileBytes(const TensorSpec& spec, const WeightTile& tile) {
  return (tile.row_end - tile.row_begin) * spec.row_bytes();
}

struct PlannedTensor {
  TensorSpec spec;
  std::vector<WeightTile> tiles;  // ascending rows, together all of them
  // The later layer that uses it too, as a tied head uses the embedding's table: it comes to the
  // device with that one and stays for its own layer in the next pass. -1: none does.
  int64_t comes_with = -1;
  int64_t store_tensor = 0;  // its number in the store: over all layers
};

struct PlannedLayer {
  ComputePart part = ComputePart::kEmbedding;
  int64_t decoder_layer = -1;
  std::vector<PlannedTensor> tensors = {};
  std::vector<Op> ops = {};
  bool attends = false;  // one of them does
};

// Hidden states on disk are written, checked and read in blocks of this size.
inline constexpr int64_t kHiddenBlockBytes = 64 << 10;

// Rows travel in runs of at most this much, or of one block where that is longer.
inline constexpr int64_t kRunBytes = 2 << 20;

// Limits of one batch of rows. A block is num_gpu_batches of these.
struct BatchCapacity {
  int64_t rows = 0;
  int64_t slots = 0;          // sum of the rows' KV slots, in the blocks that keep most
  int64_t prompt_tokens = 0;  // sum of the rows' prompts: hidden states of a prefill pass
  int64_t logits = 0;         // tokens whose logits exist at a time; at least `rows`
};

// The part of a batch's rows whose KV, or hidden states, a tier holds.
struct RowShare {
  int64_t rows = 0;
  int64_t size = 0;  // KV slots, or tokens, of these rows together
  Region region;     // of the whole block in the tier's arena; on disk in a scratch file of its own
};

// Decoder layers in which a row keeps the same tokens' worth of KV: of equal budgets and windows.
// One division of a batch's slots among its rows serves them all. Blocks differ with budgets per
// layer or KV head only.
struct KvClass {
  int64_t first_decoder_layer = 0;  // its budget is that of all
  PerTier<int64_t> slots;           // of a batch
};

// Staging for rows that do not lie in the device's memory while they are computed: three places,
// for the batch that is loaded, the one that is computed and the one that is stored.
struct StagingPlan {
  Tier tier = Tier::kCpu;
  std::array<Region, kStagingSlots> slots;
};

// Memory through which bytes pass between disk and a device that is not the CPU.
struct BounceRing {
  Region region;           // CPU
  int64_t num_chunks = 0;  // 0: nothing passes
};

// One for each way. KV that the CPU attends to passes through none.
struct BouncePlan {
  BounceRing weights_in;
  BounceRing rows_in;
  BounceRing rows_out;

  std::array<Region, 3> regions() const {
    return {weights_in.region, rows_in.region, rows_out.region};
  }
};

// Buffers through which a GPU's executor and the host exchange the rest: tables in, logits out.
struct ExchangePlan {
  Region device;
  Region host;  // CPU
};
struct ExchangeBytes {
  int64_t device = 0;
  int64_t host = 0;
};

// K and V of the prompts that are computed, with a KV policy that evicts: until it is known which
// tokens stay; on a GPU also of those whose KV the CPU attends to later. Two places for the longest
// prompt, which chunks of a pass may cut, then room for the prompts that lie within one chunk; all
// in slots of PromptSlotBytes.
struct PromptKvPlan {
  int64_t align = 1;  // slots of a KV block
  int64_t longest_slots = 0;
  int64_t chunk_slots = 0;
  int64_t prefix_tokens = 0;  // before the tokens of each prompt here
  int64_t chunk_prompts = 0;  // that lie within one chunk, at most
  Region kv;                  // [2 * longest_slots + chunk_slots]
  Region scores;              // fp32 [num_heads][columns]; of policies that choose by scores

  int64_t slots() const { return 2 * longest_slots + chunk_slots; }
  // Scores of all prompts here, the prefix's of each included.
  int64_t columns() const {
    constexpr int64_t kAligned = 16;  // of a head's
    return RoundUp(slots() + (2 + chunk_prompts) * prefix_tokens, kAligned);
  }
};

// Tokens that all prompts begin with, whose K and V lie in the device's memory once for all rows.
// They go through each layer when that is computed for the first time. Rows feed what comes after
// them; so do their caches hold that alone, but where tokens are evicted: there a row keeps, of its
// whole prompt, what its own scores and windows say.
struct PrefixPlan {
  std::vector<TokenId> tokens = {};  // none: every row feeds all of its tokens
  Region kv;                         // [decoder_layer][slot], of PromptSlotBytes
  Region scores;  // fp32 [decoder_layer][head][token]: of policies that choose by scores, those
                  // that the prefix's own queries give
  Region hidden;  // fp32 [token, state], between layers

  int64_t num_tokens() const { return std::ssize(tokens); }
};

// Memory that one Compute uses, all in the device's arena.
struct WorkspacePlan {
  int64_t chunk_tokens = 0;
  // Buffers of the layers' programs, fp32 [rows, width]: rows of a chunk, or in the head of logits.
  // The states are in it for the head alone; other layers have them where the mover says. Buffers
  // that no layer uses together may lie in the same place.
  PerBuf<Region> buffers;
  Region matmul;  // the kernels' own
  Region attention;
  PromptKvPlan prompt;
  // Of a cache that rolls: how keys are turned at each place of the longest prompt, and of the
  // largest cache (kernels/kv/key_turns.h).
  int64_t turn_rows = 0;
  Region key_turns;  // fp32 [turn_rows, rope.dims]
  // Where keys are centred (Plan::centres_keys): how each span of positions turns a mean, and the
  // means of the layer that is computed (kernels/kv/key_means.h).
  int64_t mean_spans = 0;
  Region span_turns;  // fp32 [rope of RopesOf][span][head_dim]
  Region key_means;   // fp32 [kv_head][span][head_dim]
};

// True: the model has rotary positions, and heads of a size that can be turned, a power of two.
inline bool CanTurnHeads(const ModelShape& shape) {
  constexpr int64_t kMost = 256;  // what the kernels hold
  return shape.rope.dims > 0 && shape.head_dim <= kMost &&
         (shape.head_dim & (shape.head_dim - 1)) == 0;
}

// True: the cache can hold the model's keys in 4 bits. Those that positions rotate are turned
// before.
inline bool HoldsKeysOf4Bits(const ModelShape& shape) {
  return shape.rope.dims == 0 || CanTurnHeads(shape);
}

struct Plan {
  ModelShape shape;
  Machine machine;
  Policy policy;
  KvPolicy kept;                     // the policy's, within the windows of the model's layers
  std::vector<PlannedLayer> layers;  // execution order
  // Whether the mean of each KV head's keys is left out of the cache (kernels/kv/key_means.h): of
  // keys of 4 bits that positions rotate, rows of every length alike.
  bool centres_keys = false;
  int64_t num_requests = 0;  // of the workload
  RequestShape longest;      // of its requests, in each number, as OwnShape has them
  int64_t num_batches = 1;   // of a block; no more than the workload can fill
  BatchCapacity batch;
  // K and V of one token in one run of a decoder layer, what is kept beside them, and the slot's
  // part of the bytes behind each block.
  int64_t slot_bytes = 0;
  int64_t kv_block_fill = 0;  // those bytes; 0 where no KV is on disk
  // A row's slots in a tier are rounded up to a multiple: whole KV blocks, and on disk whole 4 KiB.
  PerTier<int64_t> slot_align = {{1, 1, 1}};
  std::vector<KvClass> kv_classes;
  std::vector<int64_t> kv_class_of;        // [decoder_layer]
  PerTier<std::vector<int64_t>> kv_begin;  // [decoder_layer + 1], in slots from a batch's first
  PerTier<RowShare> kv;      // size: of the largest class; region: [batch][decoder_layer][slot]
  PerTier<RowShare> hidden;  // region: fp32 [batch][token, hidden]
  GridOrder order = GridOrder::kByLayer;
  int64_t weight_lookahead = 1;  // layers that weights are brought in ahead of their compute
  Region weight_staging;         // device: tiles of other tiers, while their layer is computed
  StagingPlan kv_staging;
  StagingPlan hidden_staging;
  KvLogPlan kv_log;
  PrefixPlan prefix;
  BouncePlan bounce;  // CPU
  WorkspacePlan workspace;
  ExchangePlan exchange;
  PerTier<int64_t> weight_bytes;
  PerTier<int64_t> arena_bytes;  // of disk: the store and the scratch files
  int64_t table_bytes = 0;       // CPU memory outside the arena: tags, queues, tables

  // Tier where layers are computed, and where KV of other tiers is attended to.
  Tier device() const { return machine.device; }

  int64_t PlannedBytes(Tier tier) const {
    return arena_bytes[tier] + (tier == Tier::kCpu ? table_bytes : 0);
  }
  // Bytes that are planned above the tier's cap; 0: none.
  int64_t Excess(Tier tier) const {
    return std::max<int64_t>(0, PlannedBytes(tier) - machine.cap_bytes[tier]);
  }
  // Floats from a row of a buffer to the next: its width; of logits on a GPU in whole 16 bytes.
  int64_t StrideOf(Buf buf) const;
  // Whether rows with their KV in `tier` are attended to where it lies.
  bool KvInPlace(Tier tier) const {
    return tier == device() || (tier == Tier::kCpu && policy.cpu_attention);
  }
  // Whether rows whose KV is off a GPU are attended to by the CPU while the GPU computes.
  bool AttendsBeside() const {
    return machine.has_gpu() && policy.cpu_attention &&
           kv[Tier::kCpu].rows + kv[Tier::kDisk].rows > 0;
  }
  // Whether rows with the same first tokens may take K and V of these from one another: each row's
  // cache holds all of its tokens, in their order, in the device's memory while a layer is
  // computed, and no key depends on a row's length.
  bool SharesBeginnings() const {
    return !shape.rope.scaling.depends_on_length() && !kept.evicts() &&
           kept.layer_windows.empty() && kv_classes.size() == 1 && !AttendsBeside();
  }
  // Whether keys and queries are reflected before the cache holds keys below 16 bits. Rotated keys
  // have no direction in common that a reflection could spread.
  bool ReflectsHeads() const { return policy.kv_bits.key < 16 && shape.rope.dims == 0; }
  // Whether a reference prompt goes through the layers ahead of the rows
  // (spillway/reference_prompt.h).
  bool HasReference() const { return ReflectsHeads() || centres_keys; }
  // Turned heads (kernels/attention/head_turn.h) of models that rotate keys: queries and keys where
  // the cache holds keys in 4 bits, values and what is attended where it holds values in 4. Of
  // SmolLM2 in bits 8,4 it leaves a divergence of 0.0037 nats in place of 0.0049.
  bool TurnsKeys() const { return CanTurnHeads(shape) && policy.kv_bits.key == 4; }
  bool TurnsValues() const { return CanTurnHeads(shape) && policy.kv_bits.value == 4; }
  // Tokens of the prefix that rows' caches leave out.
  int64_t CachePrefix() const { return kept.evicts() ? 0 : prefix.num_tokens(); }
  // A request as its row has it: without the tokens that its cache leaves out, and with those of
  // the prefix that it holds and does not feed.
  RequestShape OwnShape(RequestShape request) const {
    request.prompt_tokens -= CachePrefix();
    request.prefix_tokens = prefix.num_tokens() - CachePrefix();
    return request;
  }
  int64_t BlockRows() const { return batch.rows * num_batches; }
  // What is moved and checked as one.
  int64_t KvBlockBytes(Tier tier) const { return slot_align[tier] * slot_bytes; }
  // K and V of one token in one decoder layer, where nothing is evicted: a row's, or a prompt's
  // before eviction. And the bytes behind each block of them.
  int64_t PromptSlotBytes() const {
    return kept.evicts() ? KvSlotBytes(shape.num_kv_heads, shape.head_dim, policy.kv_bits)
                         : slot_bytes;
  }
  int64_t PromptBlockFill() const { return kept.evicts() ? 0 : kv_block_fill; }
  // Bytes of a slot that attention may read or write.
  int64_t UsedSlotBytes() const {
    return slot_bytes - kv_block_fill / KvBlockSlots(policy.kv_bits);
  }
  // Runs of a row's cache in a decoder layer, one behind the other, each laid out as
  // spillway/kv_block.h says: one with all KV heads, or, where these have budgets of their own, one
  // for each.
  int64_t KvRuns() const { return kept.head_budgets.empty() ? 1 : shape.num_kv_heads; }
  int64_t RunHeads() const { return shape.num_kv_heads / KvRuns(); }
  // The decoder layer of a cell's layer.
  int64_t DecoderLayerOf(const Cursor& cell) const {
    return layers[static_cast<std::size_t>(cell.layer)].decoder_layer;
  }
  // Tokens that a row keeps in a run of the decoder layers of a class, and the slots that it takes
  // there: one more than it keeps, for the newest token while it is not decided which one goes.
  KvKeep RunKeep(int64_t kv_class, int64_t run, int64_t row_tokens) const;
  int64_t SlotsOf(const KvKeep& keep, int64_t row_tokens) const {
    return RoundUp(std::min(row_tokens, keep.slots() + 1), slot_align[Tier::kCpu]);
  }
  int64_t RunSlots(int64_t kv_class, int64_t run, int64_t row_tokens) const;
  // Slots of all runs, in a tier.
  int64_t RowSlots(Tier tier, int64_t kv_class, int64_t row_tokens) const;
  int64_t LargestKvClass(int64_t row_tokens) const;  // in which such a row takes most slots
  KvKeep MostRunKeep(int64_t row_tokens) const;      // of any run
  int64_t MostRunSlots(int64_t row_tokens) const;
  // What a report says of a row with so many slots in its largest layer and in all: those of the
  // largest layer; with budgets per KV head those of a head, in the mean of all layers.
  int64_t HeadSlots(int64_t largest_layer, int64_t all_layers) const;
  int64_t MostHeadSlots(int64_t row_tokens) const;  // in any tier that holds KV
  // The slots of a batch in one block, and where they begin within the tier's region.
  int64_t KvSlots(Tier tier, int64_t decoder_layer) const;
  int64_t KvOffset(Tier tier, int64_t batch, int64_t decoder_layer) const;  // bytes
  int64_t KvBytes() const;  // of a block of batches and of the prefix, all tiers
  // Likewise, as they are placed in one.
  int64_t KvBytesIn(Tier tier) const {
    return kv[tier].region.bytes + (tier == device() ? prefix.kv.bytes : 0);
  }
  int64_t KvLogBytes() const;  // on disk, of a block of batches
  // Tokens that the log holds of each row of a cell's batch before its pass, and after it.
  int64_t LoggedBefore(const Cursor& cell) const {
    return kv_log.NumTokens(cell.pass - 1, cell.batch, DecoderLayerOf(cell));
  }
  int64_t LoggedAfter(const Cursor& cell) const {
    return kv_log.NumTokens(cell.pass, cell.batch, DecoderLayerOf(cell));
  }
  // Whether rows with their KV in `tier` have places in the log.
  bool Logs(Tier tier) const { return tier == Tier::kDisk && kv_log.exists(); }
  int64_t WeightBytes() const;  // all tiers
  // A token's states between layers.
  int64_t HiddenRowBytes() const { return StateWidth(shape) * int64_t{sizeof(float)}; }
  const PlannedTensor& Tensor(TensorRef ref) const {
    return layers[static_cast<std::size_t>(ref.layer)].tensors[static_cast<std::size_t>(ref.index)];
  }
};

// The ropes that layers rotate by, each once, in the order of the layers.
std::vector<Rope> RopesOf(const std::vector<PlannedLayer>& layers);

// One run of a row's cache: which, its first slot from the row's, and how much of it stays.
struct KvRunPlace {
  int64_t run = 0;
  int64_t slot_begin = 0;
  int64_t num_slots = 0;
  KvKeep keep;
};

// A row in a decoder layer, or in any of a class.
struct KvRowAt {
  int64_t kv_class = 0;
  int64_t row_tokens = 0;     // prompt + max new tokens
  int64_t decoder_layer = 0;  // any of the class, where the row keeps less nowhere
  KvLess less = {};           // than the policy says; no more
};

// Calls `visit` with each run of a row, in their order. Slots are those of the policy, whatever
// less the row keeps.
template <typename F>
void ForEachKvRun(const Plan& plan, const KvRowAt& row, F visit) {
  KvRunPlace place;
  for (; place.run < plan.KvRuns(); ++place.run) {
    const KvHeadAt at = {row.decoder_layer, place.run};
    place.keep = plan.RunKeep(row.kv_class, place.run, row.row_tokens);
    place.num_slots = plan.SlotsOf(place.keep, row.row_tokens);
    if (row.less.IsAt(at)) place.keep = KeepOf(plan.kept, at, row.row_tokens, row.less);
    visit(place);
    place.slot_begin += place.num_slots;
  }
}

// Calls `visit` with each tensor that is brought to the device with a layer: its own but for those
// that come with a later one, then others' that come with it.
template <typename F>
void ForEachTensorComingWith(const Plan& plan, int64_t layer, F visit) {
  for (const PlannedTensor& tensor : plan.layers[static_cast<std::size_t>(layer)].tensors) {
    if (tensor.comes_with < 0) visit(tensor);
  }
  for (const PlannedTensor& tensor : plan.layers.front().tensors) {
    if (tensor.comes_with == layer) visit(tensor);
  }
}

// How much workspace the kernels ask for; passed in so that planning links no kernels. `exchange`
// null: the executor is the host's own.
struct KernelNeeds {
  std::function<int64_t(int64_t rows, int64_t in, int num_threads)> matmul_bytes = nullptr;
  std::function<int64_t(int64_t row_slots, int64_t head_dim, int num_threads)> attention_bytes =
      nullptr;
  // Workspace of a policy that evicts: attention with token scores, compaction, decode.
  std::function<int64_t(int64_t row_slots, int64_t head_dim, int num_threads)> eviction_bytes =
      nullptr;
  std::function<ExchangeBytes(const Plan& plan)> exchange = nullptr;
};

// Whether a plan with that policy holds the workload's prefix once for all rows: prompts are
// attended to in the device's memory, and no key depends on a row's length.
bool HoldsPrefix(const Model& model, const Machine& machine, const Workload& work,
                 const Policy& policy);
// The plan's workload, with requests as their rows have them.
Workload OwnWork(const Plan& plan, Workload work);

// Places everything, with the workload's prefix held once where the policy allows it. Looks at the
// caps only to shorten the log of KV on disk where they do not hold all of it: it saves time, and
// can be done without.
Plan LayOutWhole(const Model& model, const Machine& machine, const Workload& work,
                 const Policy& policy, const KernelNeeds& needs);
// Likewise, for those that compare many policies, with less of the prefix, or none, where the caps
// hold no plan with all of it.
Plan LayOut(const Model& model, const Machine& machine, const Workload& work, const Policy& policy,
            const KernelNeeds& needs);

// One GridLayer for each layer. By decoder layer, neighbours with the same decoder_layer >= 0 are a
// group, but for layers of experts, which all batches go through one by one.
std::vector<GridLayer> MakeGrid(const std::vector<PlannedLayer>& layers, GridOrder order);

// Whether each tier's bytes are within its cap.
bool Fits(const Plan& plan);

// Places everything the policy asks for, as LayOut does, and proves that it fits the caps.
// Throws: Error kGpuMemory, kCpuMemory, kDiskSpace with needed against available and the nearest
// change that fits.
Plan MakePlan(const Model& model, const Machine& machine, const Workload& work,
              const Policy& policy, const KernelNeeds& needs);

}  // namespace spillway
