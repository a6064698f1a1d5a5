// ExpertMoves: which moves of a layer's weights its rows need: those of experts that no row of the
// block has chosen are left out, as far as the choice is made when the load begins.
// Thread rule: one thread. Allocates nothing once it is made.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spillway/plan.h"
#include "spillway/schedule.h"
#include "src/move/transfer_stream.h"  // Move

namespace spillway {

class ExpertMoves {
 public:
  // Lifetime: the plan outlives this.
  explicit ExpertMoves(const Plan& plan);

  // A block follows, whose passes are counted anew.
  void BeginBlock() { noted_ = {-1, -1, -1}; }

  // Experts that a batch's rows chose, [number]: 1 or 0; empty: none, or that is not known yet. The
  // cell is of the router's layer, or of one of its experts' where they are known no sooner.
  void Note(const Cursor& at, std::span<const uint8_t> chosen);

  // The moves of the task that are needed, of `moves`, which are a part of the layer's from its
  // `first`-th on. Lifetime: until the next call.
  std::span<const Move> Needed(const Schedule& grid, const Task& task, std::span<const Move> moves,
                               int64_t first);

 private:
  // The router of an experts' layer; of another one itself.
  int64_t RouterAt(int64_t layer) const;
  bool IsKnown(const Schedule& grid, const Task& task) const;

  std::vector<int64_t> router_of_;             // [layer]: -1: it has no experts that are chosen
  std::vector<std::vector<int64_t>> experts_;  // [layer][move]: whose it is
  Cursor noted_ = {-1, -1, -1};                // where chosen_ is from
  std::vector<uint8_t> chosen_;
  std::vector<Move> needed_;
};

}  // namespace spillway
