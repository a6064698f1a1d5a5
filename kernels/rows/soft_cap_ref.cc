#include <cmath>

#include "kernels/rows/soft_cap.h"

namespace spillway::kernels {

void SoftCapRef(const SoftCapArgs& args) {
  const double cap = args.cap;
  for (int64_t i = 0; i < args.count; ++i)
    args.x[i] = static_cast<float>(cap * std::tanh(args.x[i] / cap));
}

}  // namespace spillway::kernels
