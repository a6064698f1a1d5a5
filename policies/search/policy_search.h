// PolicySearch: the best policies for a model, a machine whose rates are known, and a workload.
// Walks over block shapes, CPU attention and what storage is allowed; for each the placement is a
// linear program, rounded to whole rows and tiles by the plan itself. The best are laid out,
// checked and ranked by a prediction. Thread rule: pure functions of values, as far as `predict` is
// one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "policies/search/given_policy.h"
#include "policies/search/placement_lp.h"
#include "policies/search/storage_choice.h"
#include "spillway/plan.h"
#include "spillway/prediction.h"

namespace spillway {

// Prediction of what a plan will do with a workload; the simulator's answer.
using PredictFn = std::function<Prediction(const Plan&, const Workload&)>;

struct SearchInput {
  const Model& model;
  const Machine& machine;
  const Workload& work;
  GivenPolicy given;  // what is stated; never changed
  KernelNeeds needs;
  PredictFn predict;
  std::vector<StorageChoice> storage = {{}};  // that are tried; not empty
  // Every block is full: as many requests as a policy takes at a time, for as long as one asks.
  bool endless = false;
};

struct Candidate {
  Policy policy;
  StorageChoice storage;  // that the policy was made with
  Prediction prediction;
  PerTier<int64_t> planned_bytes;
  std::string bound_by;  // the limits of its placement, most costly first
};

struct SearchResult {
  // The fastest first, no two alike: at most 10, or the fastest of each storage that was tried;
  // empty: none fits. One that is stored in more bits than the fastest, and less than 1 % slower,
  // goes before it.
  std::vector<Candidate> best;
  Shortage shortage;         // of a small block, when none fits
  int64_t num_programs = 0;  // linear programs solved
  int64_t num_plans = 0;     // laid out and predicted

  bool feasible() const { return !best.empty(); }
};

// Requires: KnowsRates(machine), work.num_requests > 0.
SearchResult SearchPolicies(const SearchInput& input);

// The requests that a policy is judged by when a workload is endless: one full block.
Workload OneBlock(const Workload& work, const Policy& policy);

}  // namespace spillway
