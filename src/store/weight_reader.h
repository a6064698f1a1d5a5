// WeightReader: runs of a checkpoint's weights in the type in which the model holds them.
// Thread rule: Read from any thread, each with its own worker number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "spillway/model.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/weight_map.h"
#include "src/memory/arena.h"

namespace spillway {

enum class NonFiniteWeights { kRefuse, kAllow };

// A run of elements (of a quantised tensor: of whole rows) of tensor `tensor` of layer `layer`,
// both as the model counts them.
struct WeightRun {
  int64_t layer = 0;
  int64_t tensor = 0;
  const TensorSpec* spec = nullptr;
  int64_t first_element = 0;
};

class WeightReader {
 public:
  // Memory for what has to be converted, for each worker: as much as stays in its cache.
  static constexpr int64_t kStageBytes = 512 << 10;

  // Requires: stage_bytes is 4 KiB or more, a multiple of 64. Lifetime: checkpoint and map outlive
  // the reader. Throws: Error kCpuMemory, kSystemLimit.
  WeightReader(const Checkpoint& checkpoint, const WeightMap& map, NonFiniteWeights nonfinite,
               int num_workers, int64_t stage_bytes = kStageBytes);

  // Fills `out`. Elements are converted, or quantised, where the file has another type; a finite
  // value that the model's cannot hold is refused. Throws: Error kNonFinite, kModelUnsupported,
  // kInterrupted, and what Checkpoint::Read throws.
  void Read(const WeightRun& run, std::span<std::byte> out, int worker) const;

  // How many of the tensor's units (TensorSpec::unit_elements) to read at once, about `bytes` of
  // them. Of a matrix that is published transposed these are whole rows, where one fits: a run that
  // ends within a row costs a read of the file for each element of that row.
  int64_t UnitsOfRun(const WeightRun& run, int64_t bytes) const;

 private:
  const FoundTensor& Found(const WeightRun& run) const;
  const CheckpointTensor& Source(const WeightRun& run) const;
  std::span<std::byte> StageOf(int worker) const;
  int64_t WholeRows(const WeightRun& run, int64_t num_elements) const;
  void ReadQuantised(const WeightRun& run, std::span<std::byte> out, int worker) const;
  void ReadHeld(const WeightRun& run, std::span<std::byte> out) const;
  // Elements of the file in another type, by way of the worker's staging.
  void ReadAs(DType to, const WeightRun& run, std::span<std::byte> out,
              std::span<std::byte> stage) const;
  void CheckFinite(const CheckpointTensor& source, std::span<const std::byte> data,
                   int64_t first_element) const;

  const Checkpoint& checkpoint_;
  const WeightMap& map_;
  NonFiniteWeights nonfinite_;
  int64_t stage_bytes_;  // of a worker
  HostArena staging_;    // [worker]
};

}  // namespace spillway
