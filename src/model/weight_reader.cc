#include "src/model/weight_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/convert.h"
#include "spillway/error.h"
#include "src/stop_signal.h"

namespace spillway {

WeightReader::WeightReader(const Checkpoint& checkpoint, const WeightMap& map,
                           NonFiniteWeights nonfinite, std::span<std::byte> staging,
                           int num_workers)
    : checkpoint_(checkpoint),
      map_(map),
      nonfinite_(nonfinite),
      staging_(staging),
      stage_bytes_(static_cast<int64_t>(staging.size()) / num_workers / 64 * 64) {
  SPILLWAY_CHECK(stage_bytes_ > 0);
}

void WeightReader::Read(const WeightRun& run, std::span<std::byte> out, int worker) const {
  ThrowIfStopRequested();
  const int64_t index =
      map_.indices[static_cast<std::size_t>(run.layer)][static_cast<std::size_t>(run.tensor)];
  const CheckpointTensor& source = checkpoint_.tensors()[static_cast<std::size_t>(index)];
  if (source.dtype != run.spec->dtype) return ReadConverted(run, index, out, worker);
  checkpoint_.Read(index, run.first_element * DTypeBytes(source.dtype), out);
  CheckFinite(source, out, run.first_element);
}

void WeightReader::ReadConverted(const WeightRun& run, int64_t index, std::span<std::byte> out,
                                 int worker) const {
  const CheckpointTensor& source = checkpoint_.tensors()[static_cast<std::size_t>(index)];
  const DType to = run.spec->dtype;
  const int64_t from_bytes = DTypeBytes(source.dtype);
  const int64_t num_elements = static_cast<int64_t>(out.size()) / DTypeBytes(to);
  const int64_t step = stage_bytes_ / from_bytes;
  for (int64_t at = 0; at < num_elements; at += step) {
    const int64_t count = std::min(step, num_elements - at);
    const std::span<std::byte> stage =
        staging_.subspan(static_cast<std::size_t>(worker * stage_bytes_),
                         static_cast<std::size_t>(count * from_bytes));
    checkpoint_.Read(index, (run.first_element + at) * from_bytes, stage);
    CheckFinite(source, stage, run.first_element + at);
    const std::span<std::byte> part = out.subspan(static_cast<std::size_t>(at * DTypeBytes(to)),
                                                  static_cast<std::size_t>(count * DTypeBytes(to)));
    if (kernels::Convert(stage, source.dtype, part, to) == 0) continue;
    throw Error(
        ErrorCode::kModelUnsupported,
        fmt::format(
            "tensor \"{}\" holds {} values that {} cannot hold; convert the checkpoint to bf16",
            Printable(source.name), DTypeName(source.dtype), DTypeName(to)));
  }
}

void WeightReader::CheckFinite(const CheckpointTensor& source, std::span<const std::byte> data,
                               int64_t first_element) const {
  if (nonfinite_ == NonFiniteWeights::kAllow) return;
  const int64_t bad = kernels::FindNonFinite(data, source.dtype);
  if (bad < 0) return;
  throw Error(ErrorCode::kNonFinite,
              fmt::format("tensor \"{}\" holds NaN or infinity at element {}; get an undamaged "
                          "checkpoint, or --allow-nonfinite-weights",
                          Printable(source.name), first_element + bad));
}

}  // namespace spillway
