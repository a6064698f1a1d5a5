#include <cmath>

#include "kernels/rows/soft_cap.h"

namespace spillway::kernels {

void SoftCapRef(const SoftCapArgs& args) {
  const double cap = args.cap;
  for (int64_t i = 0; i < args.count; ++i) {
    const double x = static_cast<double>(args.scale) * args.x[i];
    args.x[i] = static_cast<float>(cap == 0.0 ? x : cap * std::tanh(x / cap));
  }
}

}  // namespace spillway::kernels
