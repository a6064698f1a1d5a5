// Interface between budget_attention_cpu.cc and the instruction sets: the state of some KV heads of
// a row that has stored its new token. Private to the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/isa.h"

namespace spillway::kernels {

constexpr int64_t kLowestFloats = 2 * 16;  // of BudgetTask::lowest, for each KV head at most

struct BudgetTask {
  std::byte* scores = nullptr;     // of the first KV head in the row's first block: [block_slots]
  std::byte* positions = nullptr;  // likewise; fp32 and int32
  int64_t head_bytes = 0;          // from there to the next KV head's
  int64_t block_bytes = 0;         // and to the next block's
  int64_t block_slots = 0;
  int64_t num_heads = 0;
  int64_t num_held = 0;  // the new token included
  // weights: [slot / kAttentionKeys][query][slot % kAttentionKeys], `group` queries a KV head. Over
  // kDecodeQueries they come as one query, added up before. Readable from num_held to a whole
  // register.
  // factors: [slot / kAttentionKeys][kDecodeQueries]; a query's weights in those slots are
  // multiplied by it.
  // A group's weights are added up in order of its queries. Null: scores do not matter.
  const float* weights = nullptr;
  const float* factors = nullptr;
  int64_t group = 1;
  int64_t first_candidate = 0;  // positions that may go
  int64_t last_candidate = 0;   // included
  int64_t first_seen = 0;       // positions below it are the lowest, whatever their score
  float* lowest = nullptr;      // workspace: kLowestFloats for each KV head
  // [KV head]: the slot of the candidate to evict; -1 when no token is a candidate.
  int64_t* victims = nullptr;
};

// Adds the weights to the scores and names the victims. What is in slots not held does not matter,
// and may change.
using UpdateBudget = void (*)(const BudgetTask& task);
UpdateBudget UpdateBudgetOf(Isa isa);

void UpdateBudgetPortable(const BudgetTask& task);
void UpdateBudgetAvx2(const BudgetTask& task);
void UpdateBudgetAvx512(const BudgetTask& task);

}  // namespace spillway::kernels
