#include "src/move/expert_moves.h"

#include <algorithm>
#include <cstddef>
#include <variant>

#include "src/plan/place_weights.h"

namespace spillway {
namespace {

template <typename T>
const T* OpOf(const PlannedLayer& layer) {
  for (const Op& op : layer.ops) {
    if (const auto* of = std::get_if<T>(&op)) return of;
  }
  return nullptr;
}

// The expert that a tensor belongs to.
int64_t ExpertOf(const Plan& plan, const Experts& experts, const PlannedTensor* tensor) {
  for (std::size_t at = 0; at < experts.experts.size(); ++at) {
    const Expert& expert = experts.experts[at];
    for (const Linear* linear : {&expert.gate, &expert.up, &expert.down}) {
      if (&plan.Tensor(linear->weight) == tensor) return experts.first + static_cast<int64_t>(at);
    }
  }
  return -1;
}

}  // namespace

ExpertMoves::ExpertMoves(const Plan& plan)
    : router_of_(plan.layers.size(), -1), experts_(plan.layers.size()) {
  int64_t router = -1;
  std::size_t most = 0;
  for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
    if (OpOf<Choose>(plan.layers[layer]) != nullptr) router = static_cast<int64_t>(layer);
    const auto* experts = OpOf<Experts>(plan.layers[layer]);
    if (experts == nullptr || experts->first == plan.shape.experts.num) continue;
    router_of_[layer] = router;
    for (const WeightMove& move : MovesOf(plan, static_cast<int64_t>(layer)))
      experts_[layer].push_back(ExpertOf(plan, *experts, move.tensor));
    most = std::max(most, experts_[layer].size());
  }
  chosen_.reserve(static_cast<std::size_t>(plan.shape.experts.num));
  needed_.reserve(most);
}

void ExpertMoves::Note(const Cursor& at, std::span<const uint8_t> chosen) {
  if (chosen.empty()) return;
  if (at.pass != noted_.pass || at.layer != noted_.layer) chosen_.assign(chosen.size(), 0);
  noted_ = at;
  for (std::size_t expert = 0; expert < chosen.size(); ++expert) chosen_[expert] |= chosen[expert];
}

int64_t ExpertMoves::RouterAt(int64_t layer) const {
  const int64_t router = router_of_[static_cast<std::size_t>(layer)];
  return router < 0 ? layer : router;
}

// True where the choices of all batches are noted when the load begins: at the layer that it is
// begun at, or with overlap at one so many layers before.
bool ExpertMoves::IsKnown(const Schedule& grid, const Task& task) const {
  const int64_t router = router_of_[static_cast<std::size_t>(task.cell.layer)];
  if (router < 0 || noted_.pass != task.cell.pass || RouterAt(noted_.layer) != router) return false;
  const int64_t ahead = grid.overlap == Overlap::kOn ? grid.weight_lookahead : 0;
  return task.cell.layer - ahead > noted_.layer;
}

std::span<const Move> ExpertMoves::Needed(const Schedule& grid, const Task& task,
                                          std::span<const Move> moves, int64_t first) {
  if (!IsKnown(grid, task)) return moves;
  const std::vector<int64_t>& experts = experts_[static_cast<std::size_t>(task.cell.layer)];
  needed_.clear();
  for (std::size_t at = 0; at < moves.size(); ++at) {
    const int64_t expert = experts[static_cast<std::size_t>(first) + at];
    if (expert < 0 || chosen_[static_cast<std::size_t>(expert)] != 0) needed_.push_back(moves[at]);
  }
  return needed_;
}

}  // namespace spillway
