// DummyRun: runs of plans of a model with dummy weights. The weights are in a store in a folder of
// its own, which runs spill to as well. Thread rule: one thread.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "spillway/plan.h"
#include "spillway/trace.h"
#include "src/base/thread_pool.h"
#include "src/checkpoint/weight_map.h"
#include "src/device/device.h"
#include "src/run/engine.h"
#include "src/store/weight_reader.h"
#include "tests/temporary_folder.h"

namespace spillway {

// An OPT with 4 heads of 16 elements, 96 tokens and 64 positions.
ModelShape SmallOpt(int64_t num_layers);

struct DummyRunOptions {
  using WrapFn = std::function<std::unique_ptr<Executor>(std::unique_ptr<Executor>)>;

  Overlap overlap = Overlap::kOn;
  WrapFn wrap;  // what runs in place of the device's executor; null: that one itself
  ProgressFn progress = [](const WorkDone&) {};
};

class DummyRun {
 public:
  DummyRun(const ModelShape& shape, int num_threads,
           const std::filesystem::path& root = std::filesystem::temp_directory_path());

  // `machine` as it is but for its threads and its memory, which has no limits.
  Plan PlanFor(Machine machine, const Workload& work, const Policy& policy) const;

  // Runs `job` to its end. Throws: what Engine::Run throws.
  Trace Run(const Plan& plan, Device& device, Job& job, const DummyRunOptions& options = {});

 private:
  TemporaryFolder folder_;
  Model model_;
  std::unique_ptr<Checkpoint> checkpoint_;
  WeightMap map_;
  ThreadPool pool_;
  WeightReader reader_;
};

}  // namespace spillway
