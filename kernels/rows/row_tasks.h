// Rows as tasks of a thread pool: shared by the kernels that compute row by row.
#pragma once

#include <algorithm>
#include <cstdint>

#include "spillway/round.h"
#include "src/base/thread_pool.h"

namespace spillway::kernels {

// Calls run(begin, end) for all `rows`, `task_elements` of them or more a task where a row has
// `row_elements`: a task should take about 10 us, well above the cost of handing it out.
template <typename F>
void ForRowTasks(ThreadPool& pool, int64_t rows, int64_t row_elements, int64_t task_elements,
                 const F& run) {
  const int64_t task_rows =
      std::max<int64_t>(1, task_elements / std::max<int64_t>(1, row_elements));
  auto task = [&](int64_t index, int /*worker*/) {
    run(index * task_rows, std::min(rows, (index + 1) * task_rows));
  };
  pool.Run(DivideUp(rows, task_rows), task);
}

}  // namespace spillway::kernels
