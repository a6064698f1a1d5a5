#include <cstring>

#include "kernels/rows/expert_rows.h"
#include "kernels/rows/row_tasks.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kTaskElements = 32768;

}  // namespace

void TakeExpertRows(const TakeExpertRowsArgs& args, ThreadPool& pool) {
  ForRowTasks(pool, std::ssize(args.rows), args.cols, kTaskElements,
              [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                  std::memcpy(args.y + row * args.y_stride,
                              args.rows[static_cast<std::size_t>(row)] + args.column,
                              static_cast<std::size_t>(args.cols) * sizeof(float));
                }
              });
}

void AddExpertRows(const AddExpertRowsArgs& args, ThreadPool& pool) {
  ForRowTasks(pool, std::ssize(args.rows), args.cols, kTaskElements,
              [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                  const auto at = static_cast<std::size_t>(row);
                  const float weight = args.weights[at];
                  const float* x = args.x + row * args.x_stride;
                  float* y = args.rows[at] + args.column;
                  for (int64_t col = 0; col < args.cols; ++col) y[col] += weight * x[col];
                }
              });
}

}  // namespace spillway::kernels
