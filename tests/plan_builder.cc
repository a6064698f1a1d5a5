#include "tests/plan_builder.h"

#include <algorithm>
#include <utility>

#include "spillway/kv_block.h"

namespace spillway {

ModelShape TinyShape(int64_t num_blocks) {
  ModelShape shape;
  shape.num_layers = num_blocks;
  shape.hidden_size = shape.head_dim = 1;
  shape.num_heads = shape.num_kv_heads = 1;
  return shape;
}

PlanBuilder::PlanBuilder(ModelShape shape) : shape_(std::move(shape)) {}

PlanBuilder& PlanBuilder::Batches(const BatchCapacity& batch, int64_t num_batches) {
  batch_ = batch;
  batch_.logits = std::max(batch.logits, batch.rows);
  num_batches_ = num_batches;
  return *this;
}

PlanBuilder& PlanBuilder::KvIn(Tier tier) {
  kv_tier_ = tier;
  return *this;
}

PlanBuilder& PlanBuilder::SlotAlign(int64_t slots) {
  slot_align_ = slots;
  return *this;
}

PlanBuilder& PlanBuilder::WithKvBits(KvBits bits) {
  policy_.kv_bits = bits;
  return *this;
}

PlanBuilder& PlanBuilder::Budgets(KvPolicyKind kind, std::vector<BlockBudget> blocks) {
  policy_.kv.kind = kind;
  for (const BlockBudget& block : blocks) {
    policy_.kv.layer_budgets.push_back(block.budget);
    class_slots_.push_back(block.slots);
  }
  return *this;
}

PlanBuilder& PlanBuilder::KvLog(int64_t passes, int64_t rows, const RequestShape& longest) {
  kv_log_.passes = passes;
  kv_log_.rows = rows;
  longest_ = longest;
  return *this;
}

Plan PlanBuilder::Build() const {
  Plan plan;
  plan.shape = shape_;
  plan.policy = policy_;
  plan.policy.gpu_batch_size = batch_.rows;
  plan.policy.num_gpu_batches = num_batches_;
  plan.kept = policy_.kv;
  plan.longest = longest_;
  plan.num_batches = num_batches_;
  plan.batch = batch_;
  AddLayers(plan);
  AddKv(plan);
  AddRegions(plan);
  return plan;
}

void PlanBuilder::AddLayers(Plan& plan) const {
  plan.layers.push_back({.part = ComputePart::kEmbedding});
  for (int64_t decoder_layer = 0; decoder_layer < shape_.num_layers; ++decoder_layer) {
    plan.layers.push_back(
        {.part = ComputePart::kAttention, .decoder_layer = decoder_layer, .attends = true});
    plan.layers.push_back({.part = ComputePart::kMlp, .decoder_layer = decoder_layer});
  }
  plan.layers.push_back({.part = ComputePart::kHead});
}

void PlanBuilder::AddKv(Plan& plan) const {
  const auto slot_bytes = plan.kept.evicts() ? KvSlotBytesWithState : KvSlotBytes;
  plan.slot_bytes = slot_bytes(shape_.num_kv_heads, shape_.head_dim, policy_.kv_bits);
  plan.slot_align[kv_tier_] = slot_align_;
  plan.kv_log = kv_log_;
  std::vector<int64_t> class_slots = class_slots_;
  if (class_slots.empty()) class_slots = {batch_.slots};
  for (std::size_t index = 0; index < class_slots.size(); ++index) {
    plan.kv_classes.push_back({.first_decoder_layer = static_cast<int64_t>(index), .slots = {}});
    plan.kv_classes.back().slots[kv_tier_] = class_slots[index];
  }
  for (const Tier tier : kAllTiers) plan.kv_begin[tier] = {0};
  for (int64_t decoder_layer = 0; decoder_layer < shape_.num_layers; ++decoder_layer) {
    const int64_t kv_class = class_slots_.empty() ? 0 : decoder_layer;
    plan.kv_class_of.push_back(kv_class);
    for (const Tier tier : kAllTiers) {
      const int64_t slots = plan.kv_classes[static_cast<std::size_t>(kv_class)].slots[tier];
      plan.kv_begin[tier].push_back(plan.kv_begin[tier].back() + slots);
    }
  }
}

void PlanBuilder::AddRegions(Plan& plan) const {
  const int64_t kv_bytes = num_batches_ * plan.kv_begin[kv_tier_].back() * plan.slot_bytes;
  plan.kv[kv_tier_] = {batch_.rows, batch_.slots, {0, kv_bytes}};
  plan.arena_bytes[kv_tier_] = kv_bytes;
  int64_t& cpu_end = plan.arena_bytes[Tier::kCpu];
  const int64_t hidden_bytes = num_batches_ * batch_.prompt_tokens * plan.HiddenRowBytes();
  plan.hidden[Tier::kCpu] = {batch_.rows, batch_.prompt_tokens, {cpu_end, hidden_bytes}};
  cpu_end += hidden_bytes;
}

}  // namespace spillway
