// PlanBuilder: small Plans made by hand, for tests of what reads a plan. A decoder without weights
// or kernels, whose rows all lie in one tier; what follows from the settings (layers, classes of KV
// budgets, where each block's slots begin, regions, arenas) is filled in by Build. A plan whose
// numbers matter is LayOut's.
#pragma once

#include <cstdint>
#include <vector>

#include "spillway/plan.h"

namespace spillway {

// The smallest decoder: one head of one element, so that a token has 4 bytes of KV in a block and
// 4 of hidden state.
ModelShape TinyShape(int64_t num_blocks);

class PlanBuilder {
 public:
  // Tokens that one decoder layer keeps of a row, and the slots that a batch has there.
  struct BlockBudget {
    KvBudget budget;
    int64_t slots = 0;
  };

  // The layers: embedding, attention and MLP of each of shape.num_layers blocks, head. They have no
  // tensors and no programs.
  explicit PlanBuilder(ModelShape shape);

  // Default: none. Logits are at least the rows.
  PlanBuilder& Batches(const BatchCapacity& batch, int64_t num_batches);
  // Tier of the KV; hidden states are in CPU memory. Default: kCpu.
  PlanBuilder& KvIn(Tier tier);
  // A row's slots are a multiple of so many. Default: 1.
  PlanBuilder& SlotAlign(int64_t slots);
  // Default: 16.
  PlanBuilder& WithKvBits(KvBits bits);
  // A policy that evicts, with a class of its own for each block [num_layers].
  PlanBuilder& Budgets(KvPolicyKind kind, std::vector<BlockBudget> blocks);
  // A log of KV on disk with places, but no bytes, for `rows` of a batch, none longer than
  // `longest`.
  PlanBuilder& KvLog(int64_t passes, int64_t rows, const RequestShape& longest);

  Plan Build() const;

 private:
  void AddLayers(Plan& plan) const;
  void AddKv(Plan& plan) const;
  void AddRegions(Plan& plan) const;

  ModelShape shape_;
  Policy policy_;
  BatchCapacity batch_;
  int64_t num_batches_ = 1;
  Tier kv_tier_ = Tier::kCpu;
  int64_t slot_align_ = 1;
  std::vector<int64_t> class_slots_;  // [decoder_layer] with Budgets; else empty: one class
  KvLogPlan kv_log_;
  RequestShape longest_;
};

}  // namespace spillway
