#include "spillway/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/plan_builder.h"
#include "tests/trace_case.h"

namespace spillway {
namespace {

// The embedding, attention and MLP of each block, the head.
std::vector<GridLayer> GridOf(int64_t num_blocks, GridOrder order) {
  return MakeGrid(PlanBuilder(TinyShape(num_blocks)).Build().layers, order);
}

Schedule Blocks(int64_t num_blocks, int64_t num_batches, Overlap overlap = Overlap::kOn) {
  Schedule schedule;
  schedule.layers = GridOf(num_blocks, GridOrder::kByLayer);
  schedule.num_batches = num_batches;
  schedule.overlap = overlap;
  return schedule;
}

TEST(ScheduleTest, WalksAsFlexGenDoesBatchThenLayerThenPass) {
  for (int64_t blocks = 1; blocks <= 3; ++blocks) {
    for (int64_t batches = 1; batches <= 4; ++batches) {
      const Schedule schedule = Blocks(blocks, batches);
      const int64_t layers = schedule.num_layers();
      Cursor at;
      for (int64_t pass = 0; pass < 3; ++pass) {
        for (int64_t layer = 0; layer < layers; ++layer) {
          for (int64_t batch = 0; batch < batches; ++batch, at = schedule.Next(at)) {
            SCOPED_TRACE(CaseOf("blocks", blocks, "batches", batches, "pass", pass, "layer", layer,
                                "batch", batch));
            EXPECT_EQ(at, (Cursor{pass, layer, batch}));
            EXPECT_EQ(schedule.EndsBatch(at), layer == layers - 1);
          }
        }
      }
    }
  }
}

// A batch goes through both layers of a block before the next one does.
TEST(ScheduleTest, WalksLayersOfABlockThenBatchThenBlockThenPass) {
  Schedule schedule = Blocks(2, 2);
  schedule.layers = GridOf(2, GridOrder::kByDecoderLayer);
  std::vector<std::pair<int64_t, int64_t>> cells;  // layer, batch
  Cursor at;
  for (; at.pass == 0; at = schedule.Next(at)) cells.emplace_back(at.layer, at.batch);
  EXPECT_EQ(cells, (std::vector<std::pair<int64_t, int64_t>>{{0, 0},
                                                             {0, 1},  //
                                                             {1, 0},
                                                             {2, 0},
                                                             {1, 1},
                                                             {2, 1},  //
                                                             {3, 0},
                                                             {4, 0},
                                                             {3, 1},
                                                             {4, 1},  //
                                                             {5, 0},
                                                             {5, 1}}));
  EXPECT_EQ(at, (Cursor{1, 0, 0}));
  EXPECT_EQ(schedule.num_groups(), 4);
  const std::vector<int64_t> groups = {0, 1, 1, 2, 2, 3};
  for (int64_t layer = 0; layer < schedule.num_layers(); ++layer) {
    EXPECT_EQ(schedule.Layer(layer).group, groups[static_cast<size_t>(layer)]);
  }
}

using CellKey = std::tuple<int64_t, int64_t, int64_t>;
CellKey KeyOf(const Cursor& cell) { return {cell.pass, cell.layer, cell.batch}; }

// Walks some passes and checks that every load comes before its compute and after the store of what
// it reads, and that nothing is loaded or stored twice.
void CheckOrder(const Schedule& schedule) {
  const int64_t num_layers = schedule.num_layers();
  const bool overlaps = schedule.overlap == Overlap::kOn;
  std::set<CellKey> kv_loaded;
  std::set<CellKey> hidden_loaded;
  std::set<CellKey> kv_stored;
  std::set<CellKey> hidden_stored;
  std::map<std::pair<int64_t, int64_t>, int64_t> weight_shares;  // (pass, layer) -> shares begun
  for (int64_t layer = 0; overlaps && layer < schedule.weight_lookahead; ++layer) {
    weight_shares[{0, layer}] = schedule.num_batches;  // the engine begins with them
  }
  Cursor at;
  for (; at.pass < 3; at = schedule.Next(at)) {
    for (const Task& task : schedule.At(at)) {
      const Cursor& cell = task.cell;
      SCOPED_TRACE(CaseOf("blocks", num_layers / 2 - 1, "batches", schedule.num_batches, "task",
                          task.kind, "pass", cell.pass, "layer", cell.layer, "batch", cell.batch));
      switch (task.kind) {
        case TaskKind::kLoadKv:
          EXPECT_TRUE(schedule.Layer(cell.layer).attends);
          EXPECT_TRUE(kv_loaded.insert(KeyOf(cell)).second);
          if (cell.pass > 0) {
            EXPECT_TRUE(kv_stored.contains({cell.pass - 1, cell.layer, cell.batch}));
          }
          break;
        case TaskKind::kLoadHidden:
          EXPECT_TRUE(hidden_loaded.insert(KeyOf(cell)).second);
          EXPECT_TRUE(hidden_stored.contains({cell.pass, cell.layer - 1, cell.batch}));
          EXPECT_NE(schedule.Layer(cell.layer).group, schedule.Layer(cell.layer - 1).group);
          break;
        case TaskKind::kLoadWeights: {
          int64_t& shares = weight_shares[{cell.pass, cell.layer}];
          EXPECT_EQ(task.share, overlaps ? shares : 0);
          shares += overlaps ? 1 : schedule.num_batches;
          break;
        }
        case TaskKind::kCompute:
          EXPECT_EQ(cell, at);
          EXPECT_EQ((weight_shares[{at.pass, at.layer}]), schedule.num_batches);
          if (schedule.Layer(at.layer).attends) {
            EXPECT_TRUE(kv_loaded.contains(KeyOf(at)));
          }
          if (schedule.num_batches > 1 && at.layer > 0 &&
              schedule.Layer(at.layer).group != schedule.Layer(at.layer - 1).group) {
            EXPECT_TRUE(hidden_loaded.contains(KeyOf(at)));
          }
          break;
        case TaskKind::kStoreKv:
          EXPECT_TRUE(kv_stored.insert(KeyOf(cell)).second);
          break;
        case TaskKind::kStoreHidden:
          EXPECT_LT(cell.layer, num_layers - 1);
          EXPECT_TRUE(hidden_stored.insert(KeyOf(cell)).second);
          break;
      }
    }
  }
}

TEST(ScheduleTest, LoadsComeAfterTheStoresTheyReadAndBeforeTheComputesThatNeedThem) {
  for (const Overlap overlap : {Overlap::kOn, Overlap::kOff}) {
    for (int64_t blocks = 1; blocks <= 3; ++blocks) {
      for (int64_t batches = 1; batches <= 5; ++batches) {
        SCOPED_TRACE(std::to_string(blocks) + " blocks " + std::to_string(batches) + " batches");
        Schedule schedule = Blocks(blocks, batches, overlap);
        for (int64_t lookahead = 1; lookahead <= 2; ++lookahead) {
          schedule.weight_lookahead = lookahead;
          CheckOrder(schedule);
        }
        schedule.layers = GridOf(blocks, GridOrder::kByDecoderLayer);
        CheckOrder(schedule);
      }
    }
  }
}

// FlexGen's loop body: load weights(layer + 1), load KV(batch + 1), store hidden(batch - 1), load
// hidden(batch + 1), compute, store KV(batch - 1). Here stores are begun at the end of their own
// cell, which is the beginning of the next one, and weights are spread over the batches.
TEST(ScheduleTest, ACellHasFlexGensTasks) {
  const Schedule schedule = Blocks(2, 3);
  std::vector<Task> tasks;
  for (const Task& task : schedule.At({1, 3, 1})) tasks.push_back(task);
  EXPECT_EQ(tasks, (std::vector<Task>{{TaskKind::kLoadKv, {1, 3, 2}},
                                      {TaskKind::kLoadHidden, {1, 3, 2}},
                                      {TaskKind::kLoadWeights, {1, 4, 0}, 1, 3},
                                      {TaskKind::kCompute, {1, 3, 1}},
                                      {TaskKind::kStoreKv, {1, 3, 1}},
                                      {TaskKind::kStoreHidden, {1, 3, 1}}}));
}

// Cells with both layers of a block (FlexGen without sep_layer): what the next batch
// needs is asked for at the attention, and the states leave behind the MLP.
TEST(ScheduleTest, ABlockHasTheTasksOfOneCell) {
  Schedule schedule = Blocks(2, 3);
  schedule.layers = GridOf(2, GridOrder::kByDecoderLayer);
  schedule.weight_lookahead = 2;
  std::vector<Task> tasks;
  for (const int64_t layer : {3, 4}) {
    for (const Task& task : schedule.At({1, layer, 1})) tasks.push_back(task);
  }
  EXPECT_EQ(tasks, (std::vector<Task>{{TaskKind::kLoadKv, {1, 3, 2}},
                                      {TaskKind::kLoadHidden, {1, 3, 2}},
                                      {TaskKind::kLoadWeights, {1, 5, 0}, 1, 3},
                                      {TaskKind::kCompute, {1, 3, 1}},
                                      {TaskKind::kStoreKv, {1, 3, 1}},
                                      {TaskKind::kLoadWeights, {2, 0, 0}, 1, 3},
                                      {TaskKind::kCompute, {1, 4, 1}},
                                      {TaskKind::kStoreHidden, {1, 4, 1}}}));
}

}  // namespace
}  // namespace spillway
