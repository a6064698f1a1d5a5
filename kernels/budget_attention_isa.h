// What budget_attention_cpu.cc hands to the instruction sets: the state of one row's KV head after
// it attended. Private to the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway::kernels {

struct BudgetTask {
  std::byte* scores = nullptr;     // of this KV head in the row's first block: [block_slots] fp32
  std::byte* positions = nullptr;  // likewise: [block_slots] int32
  int64_t block_bytes = 0;         // from there to the next block's
  int64_t block_slots = 0;
  int64_t num_held = 0;            // the new token included
  const float* weights = nullptr;  // [num_held rounded up to 16]; null: scores do not matter
  int64_t first_candidate = 0;     // positions that may go
  int64_t last_candidate = 0;      // included
};

// Adds the weights to the scores. Returns the slot of the candidate that goes; -1 when no token is
// a candidate.
int64_t UpdateBudgetPortable(const BudgetTask& task);
int64_t UpdateBudgetAvx2(const BudgetTask& task);
int64_t UpdateBudgetAvx512(const BudgetTask& task);

}  // namespace spillway::kernels
