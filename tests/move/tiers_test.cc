#include "src/move/tiers.h"

#include <gtest/gtest.h>

#include "src/compute/host_device.h"
#include "tests/plan/plan_test_util.h"
#include "tests/temporary_folder.h"
#include "tests/workload_of.h"

namespace spillway {
namespace {

// Half of KV on disk, the rest in a gigabyte of memory that nobody has written to yet.
TEST(TiersTest, OnlyWhatTheDiskReachesIsResidentBeforeItIsUsed) {
  const ModelShape shape = *BuiltInShape("opt-125m");
  Policy policy;
  policy.weight_frac[Tier::kCpu] = policy.activation_frac[Tier::kCpu] = 1.0;
  policy.kv_frac[Tier::kCpu] = policy.kv_frac[Tier::kDisk] = 0.5;
  policy.gpu_batch_size = 8;
  policy.num_gpu_batches = 4;
  const Plan plan = LayOut(MakeModel(shape), MachineWith(int64_t{1} << 40), WorkOf(32, {1000, 24}),
                           policy, kNeeds);
  ASSERT_GT(plan.arena_bytes[Tier::kCpu], 800 << 20);
  const TemporaryFolder folder;
  DiskOptions disk;
  disk.folder = folder.path();
  HostDevice device;
  const Tiers tiers(plan, disk, device);
  int64_t staging = 0;
  for (const Region& slot : plan.kv_staging.slots) staging += slot.bytes;
  EXPECT_LE(tiers.arena(Tier::kCpu).ResidentBytes(), staging + (16 << 20));
}

}  // namespace
}  // namespace spillway
