// A query as the oracles of attention read it. Private to them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/kv/kv_element_ref.h"

namespace spillway::kernels {

// How queries meet keys of codes.
enum class QueriesRef { kRounded, kAsTheyAre };

// A query's head, scaled, as it meets the keys: [head_dim].
inline std::vector<double> QueryRef(const AttentionTensors& args, const float* q,
                                    QueriesRef queries) {
  std::vector<double> scaled;
  for (int64_t d = 0; d < args.head_dim; ++d)
    scaled.push_back(static_cast<double>(q[d] * args.scale));
  const bool rounds =
      queries == QueriesRef::kRounded && args.kv_bits.key != 16 && !args.turns.exist();
  return rounds ? RoundedQueryRef(std::move(scaled)) : scaled;
}

}  // namespace spillway::kernels
