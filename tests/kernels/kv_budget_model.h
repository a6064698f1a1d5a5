// The rule of the evicting KV policies from scratch, in double and without slots: one KV head of
// one row is a list of tokens. Shares no code with the kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "spillway/kv_policy.h"

namespace spillway::kernels {

struct ModelToken {
  int64_t position;
  std::vector<double> k;
  std::vector<double> v;
  double score = 0;
};

class KvBudgetModel {
 public:
  // Scores closer than `tolerance`, relative, may be told apart either way; 0: exact ties, the
  // rule.
  KvBudgetModel(KvPolicyKind kind, KvKeep keep, double tolerance)
      : flexgen_(kind == KvPolicyKind::kH2oFlexgen), keep_(keep), tolerance_(tolerance) {
    if (!flexgen_ || keep_.heavy == 0) return;
    --keep_.heavy;
    ++keep_.recent;
  }

  const std::vector<ModelToken>& tokens() const { return tokens_; }
  void Add(ModelToken token) { tokens_.push_back(std::move(token)); }

  // How a query sees the key of a token, of which `earlier` and `later` ones are held: of a rolling
  // cache.
  using Seen =
      std::function<std::vector<double>(const ModelToken&, int64_t earlier, int64_t later)>;

  // Adds the weights of one query over all tokens held to their scores; returns its output.
  std::vector<double> Attend(const std::vector<double>& scaled_q, const Seen& seen = nullptr) {
    std::vector<double> weights;
    Forget(tokens_.back().position);
    for (size_t at = 0; at < tokens_.size(); ++at) {
      const ModelToken& token = tokens_[at];
      const auto earlier = static_cast<int64_t>(at);
      const std::vector<double> key =
          seen == nullptr
              ? token.k
              : seen(token, earlier, static_cast<int64_t>(tokens_.size()) - 1 - earlier);
      double dot = 0;
      for (size_t d = 0; d < scaled_q.size(); ++d) dot += scaled_q[d] * key[d];
      weights.push_back(dot);
    }
    const double maximum = *std::max_element(weights.begin(), weights.end());
    double total = 0;
    for (double& weight : weights) total += weight = std::exp(weight - maximum);
    std::vector<double> out(scaled_q.size());
    for (size_t i = 0; i < tokens_.size(); ++i) {
      tokens_[i].score += weights[i] / total;
      for (size_t d = 0; d < out.size(); ++d) out[d] += weights[i] / total * tokens_[i].v[d];
    }
    return out;
  }

  // Chooses what stays after the prompt. `held` is what the kernel kept.
  void KeepAfterPrompt(const std::set<int64_t>& held) {
    const int64_t next = tokens_.back().position + 1;
    Forget(next);
    if (static_cast<int64_t>(tokens_.size()) > keep_.slots()) {
      std::set<int64_t> candidates;
      for (const ModelToken& token : tokens_) {
        if (token.position >= keep_.sinks && token.position < next - keep_.recent)
          candidates.insert(token.position);
      }
      while (static_cast<int64_t>(candidates.size()) > keep_.heavy)
        candidates.erase(Drop(candidates, held));
    }
    ExpectHeld(held);
  }

  // Evicts after a decode step whose token has been added. `held` is what the kernel kept.
  void Evict(const std::set<int64_t>& held) {
    Forget(tokens_.back().position + 1);
    if (static_cast<int64_t>(tokens_.size()) > keep_.slots()) {
      const int64_t newest = tokens_.back().position;
      const bool no_competition = flexgen_ && keep_.heavy > 0;
      std::set<int64_t> candidates;
      for (const ModelToken& token : tokens_) {
        const int64_t age = newest - token.position;  // the window is age 0 .. recent - 1
        if (age < keep_.recent || token.position < keep_.sinks) continue;
        if (no_competition && age == keep_.recent) continue;
        candidates.insert(token.position);
      }
      Drop(candidates, held);
    }
    ExpectHeld(held);
  }

 private:
  // Forgets the tokens that a query at `position` does not see, nor any later one.
  void Forget(int64_t position) {
    if (keep_.window == 0) return;
    std::erase_if(tokens_, [&](const ModelToken& token) {
      return token.position <= position - keep_.window;
    });
  }
  std::vector<ModelToken>::iterator Find(int64_t position) {
    return std::find_if(tokens_.begin(), tokens_.end(),
                        [&](const ModelToken& token) { return token.position == position; });
  }
  // Drops the lowest score, of equal ones the higher position; or, as close to it, what the kernel
  // dropped.
  int64_t Drop(const std::set<int64_t>& candidates, const std::set<int64_t>& held) {
    int64_t victim = *candidates.rbegin();
    for (auto at = candidates.rbegin(); at != candidates.rend(); ++at)
      if (Find(*at)->score < Find(victim)->score) victim = *at;
    const double limit = Find(victim)->score * (1 + tolerance_);
    if (tolerance_ > 0 && held.contains(victim)) {
      for (const int64_t other : candidates)
        if (!held.contains(other) && Find(other)->score <= limit) victim = other;
    }
    tokens_.erase(Find(victim));
    return victim;
  }
  void ExpectHeld(const std::set<int64_t>& held) const {
    std::set<int64_t> ours;
    for (const ModelToken& token : tokens_) ours.insert(token.position);
    ASSERT_EQ(held, ours);
  }

  bool flexgen_;
  KvKeep keep_;
  double tolerance_;
  std::vector<ModelToken> tokens_;
};

}  // namespace spillway::kernels
