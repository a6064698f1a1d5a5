#include "spillway/schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway {
namespace {

TEST(ScheduleTest, WalksBatchThenLayerThenPass) {
  for (int64_t layers = 1; layers <= 5; ++layers) {
    for (int64_t batches = 1; batches <= 4; ++batches) {
      const Schedule schedule = {layers, batches};
      Cursor at;
      for (int64_t pass = 0; pass < 3; ++pass) {
        for (int64_t layer = 0; layer < layers; ++layer) {
          for (int64_t batch = 0; batch < batches; ++batch, at = schedule.Next(at)) {
            EXPECT_EQ(at, (Cursor{pass, layer, batch}));
            EXPECT_EQ(schedule.EndsBatch(at), layer == layers - 1);
            EXPECT_EQ(schedule.EndsPass(at), layer == layers - 1 && batch == batches - 1);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace spillway
