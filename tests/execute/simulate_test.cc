#include "src/execute/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/machine/machine_file.h"

namespace spillway {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Le;

const KernelNeeds kNeeds = {[](int64_t, int64_t, int) { return int64_t{0}; },
                            [](int64_t, int64_t, int) { return int64_t{0}; }};

Machine T4() { return ReadMachine(SPILLWAY_SOURCE_DIR "/examples/machines/t4.json"); }

Workload Requests(int64_t count, RequestShape row) {
  Workload work;
  work.num_requests = count;
  work.sample.assign(static_cast<std::size_t>(std::min<int64_t>(count, 4096)), row);
  work.longest = row;
  return work;
}

PerTier<double> Share(double gpu, double cpu) {
  PerTier<double> frac;
  frac[Tier::kGpu] = gpu;
  frac[Tier::kCpu] = cpu;
  frac[Tier::kDisk] = 1.0 - gpu - cpu;
  return frac;
}

struct Published {
  const char* model;
  int64_t batch;
  int64_t num_batches;
  std::array<double, 6> share;  // weights, KV, activations: on gpu and cpu each
  bool cpu_attention;
  double low;  // tokens/s, least and most published
  double high;
};

double FlexGenTokensPerS(const Published& point) {
  Policy policy;
  policy.weight_frac = Share(point.share[0], point.share[1]);
  policy.kv_frac = Share(point.share[2], point.share[3]);
  policy.activation_frac = Share(point.share[4], point.share[5]);
  policy.gpu_batch_size = point.batch;
  policy.num_gpu_batches = point.num_batches;
  policy.cpu_attention = point.cpu_attention;
  policy.prefill_chunk = 1 << 20;
  const Workload work = Requests(point.batch * point.num_batches, {512, 32});
  const Plan plan = LayOut(*BuiltInShape(point.model), T4(), work, policy, kNeeds);
  SimOptions options;
  options.schedule = SimSchedule::kFlexGen;
  const SimResult result = Simulate(plan, work, options);
  printf("%s %.2f tokens/s prefill %.1f decode %.1f bound %s\n", point.model,
         result.prediction.generated_tokens_per_s, result.prediction.prefill_s,
         result.prediction.decode_s, result.prediction.bound_by.c_str());
  return result.prediction.generated_tokens_per_s;
}

TEST(SimulateAsFlexGen, PredictsWhatWasPublished) {
  constexpr double kTolerance = 0.15;
  for (const Published& point :
       {Published{"opt-30b", 48, 3, {0.2, 0.8, 0.0, 1.0, 0.0, 1.0}, true, 7.32, 8.1},
        Published{"opt-6.7b", 2, 1, {1.0, 0.0, 1.0, 0.0, 1.0, 0.0}, false, 20.2, 25.3},
        Published{"opt-175b", 32, 8, {0.0, 0.5, 0.0, 0.0, 0.0, 1.0}, true, 0.69, 0.69}}) {
    EXPECT_THAT(FlexGenTokensPerS(point),
                AllOf(Ge((1 - kTolerance) * point.low), Le((1 + kTolerance) * point.high)))
        << point.model;
  }
}

}  // namespace
}  // namespace spillway
