// ExpertRows: rows of tokens on their way to an expert and back, from and to wherever they lie.
// Each element is one product and one sum, so its bits are the same on every instruction set and on
// a GPU, whose forms (Async, one kernel) take lists and rows in its memory. Thread rule: one call
// at a time per pool.
#pragma once

#include <cstdint>
#include <span>

#include "src/base/thread_pool.h"

namespace spillway {
class Stream;
}

namespace spillway::kernels {

// y[i] = rows[i][column ...].
struct TakeExpertRowsArgs {
  std::span<float* const> rows;
  int64_t column = 0;
  int64_t cols = 0;
  float* y = nullptr;  // [rows.size(), cols], stride y_stride
  int64_t y_stride = 0;
};

void TakeExpertRows(const TakeExpertRowsArgs& args, ThreadPool& pool);
void TakeExpertRowsAsync(const TakeExpertRowsArgs& args, Stream& stream);

// rows[i][column ...] += weights[i] * x[i].
struct AddExpertRowsArgs {
  std::span<float* const> rows;  // no one twice
  int64_t column = 0;
  std::span<const float> weights;  // of each
  const float* x = nullptr;        // [rows.size(), cols], stride x_stride
  int64_t x_stride = 0;
  int64_t cols = 0;
};

void AddExpertRows(const AddExpertRowsArgs& args, ThreadPool& pool);
void AddExpertRowsAsync(const AddExpertRowsArgs& args, Stream& stream);

}  // namespace spillway::kernels
