// What budget_attention_cpu.cc hands to the instruction sets: the state of one row's KV head after
// it attended. Private to the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway::kernels {

struct BudgetTask {
  std::byte* scores = nullptr;     // of this KV head in the row's first block: [16] fp32
  std::byte* positions = nullptr;  // likewise: [16] int32
  int64_t block_bytes = 0;         // from there to the next block's
  int64_t num_held = 0;            // the new token included
  const float* weights = nullptr;  // [num_held rounded up to 16]; null: scores do not matter
  int64_t first_candidate = 0;     // positions that may go
  int64_t last_candidate = 0;      // included
};

struct BudgetFunctions {
  void (*add_weights)(const BudgetTask& task);
  // The slot of the candidate that goes; -1 when there is no candidate.
  int64_t (*find_victim)(const BudgetTask& task);
};

extern const BudgetFunctions kBudgetPortable;
extern const BudgetFunctions kBudgetAvx2;
extern const BudgetFunctions kBudgetAvx512;

}  // namespace spillway::kernels
