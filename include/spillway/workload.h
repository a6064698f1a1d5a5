// Workload: how many requests there are and how long they are. The third input of planning.
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "spillway/model.h"  // TokenId

namespace spillway {

struct RequestShape {
  int64_t prompt_tokens = 0;
  int64_t max_new_tokens = 0;
  int64_t prompt_logits = 1;  // tokens of the prompt whose logits are wanted: more than the last
                              // one where a text is scored
  // First tokens of the prompt that are not fed, since a plan has their K and V from elsewhere.
  int64_t prefix_tokens = 0;

  // KV slots the row can come to need: the last token's K and V are never read, but are stored.
  int64_t slots() const { return prompt_tokens + max_new_tokens; }
  int64_t fed_tokens() const { return prompt_tokens - prefix_tokens; }  // of the prompt

  bool operator==(const RequestShape&) const = default;
};

struct Workload {
  int64_t num_requests = 0;
  std::vector<RequestShape> sample;  // requests evenly spread over the input, in its order; all of
                                     // them in small files; not empty where there are requests
  RequestShape longest;              // no request exceeds any of its numbers
  // First tokens of all prompts, before those whose logits are wanted, in whole steps of
  // kPrefixStep; the shapes count them. Empty: the prompts have none in common, or it does not
  // matter.
  std::vector<TokenId> prefix = {};

  // Requests that one of the sample stands for; 0 without requests.
  double rows_per_sampled() const {
    return sample.empty() ? 0.0
                          : static_cast<double>(num_requests) / static_cast<double>(sample.size());
  }
};

}  // namespace spillway
