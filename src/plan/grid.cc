#include "spillway/grid.h"

#include "spillway/plan.h"

namespace spillway {

std::vector<GridLayer> MakeGrid(const std::vector<PlannedLayer>& layers, GridOrder order) {
  std::vector<GridLayer> grid;
  int64_t attention = 0;
  for (std::size_t at = 0; at < layers.size(); ++at) {
    const bool joins = order == GridOrder::kByDecoderLayer && at > 0 &&
                       layers[at].decoder_layer >= 0 && !HasExperts(layers[at].ops) &&
                       layers[at].decoder_layer == layers[at - 1].decoder_layer;
    const auto layer = static_cast<int64_t>(at);
    GridLayer of = {layers[at].attends, attention, 0, layer, layer};
    if (at > 0) of.group = grid.back().group + (joins ? 0 : 1);
    if (joins) of.group_begin = grid.back().group_begin;
    grid.push_back(of);
    for (auto begin = static_cast<std::size_t>(of.group_begin); begin < at; ++begin) {
      grid[begin].group_end = layer;
    }
    attention += layers[at].attends ? 1 : 0;
  }
  return grid;
}

}  // namespace spillway
