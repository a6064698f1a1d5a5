// WorkOf: the Workload of requests that a test lists. Thread rule: any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "spillway/workload.h"

namespace spillway {

// All requests are in the sample.
inline Workload WorkOf(std::vector<RequestShape> sample) {
  Workload work;
  work.num_requests = std::ssize(sample);
  for (const RequestShape& row : sample) {
    RequestShape& longest = work.longest;
    longest.prompt_tokens = std::max(longest.prompt_tokens, row.prompt_tokens);
    longest.max_new_tokens = std::max(longest.max_new_tokens, row.max_new_tokens);
    longest.prompt_logits = std::max(longest.prompt_logits, row.prompt_logits);
  }
  work.sample = std::move(sample);
  return work;
}

inline Workload WorkOf(int64_t num_requests, const RequestShape& each) {
  return WorkOf(std::vector<RequestShape>(static_cast<std::size_t>(num_requests), each));
}

}  // namespace spillway
