#include "src/store/weight_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "kernels/convert/convert.h"
#include "kernels/convert/quantise.h"
#include "spillway/error.h"
#include "src/base/stop_signal.h"
#include "src/checkpoint/published_tensor.h"

namespace spillway {
namespace {

// `halfs` are the box's, row by row; `out` holds the rows that the box counts from. The box is
// whole rows, or a part of one row from the beginning of a group.
void QuantiseBox(const TensorSpec& spec, const ElementBox& box, std::span<const std::byte> halfs,
                 std::span<std::byte> out) {
  const auto cols = static_cast<std::size_t>(box.num_cols);
  for (int64_t row = 0; row < box.num_rows; ++row) {
    const auto* from = reinterpret_cast<const uint16_t*>(halfs.data()) + row * box.num_cols;
    const int64_t to = (box.first_row + row) * spec.row_bytes() +
                       box.first_col / kGroupWeights * GroupBytes(spec.dtype);
    kernels::QuantiseRow({from, cols}, spec.dtype,
                         out.subspan(static_cast<std::size_t>(to),
                                     static_cast<std::size_t>(RowBytes(spec.dtype, box.num_cols))));
  }
}

// Whether halfs are those fp32 values to the bit, but for the sign of a zero.
bool AreExact(std::span<const std::byte> halfs, std::span<const std::byte> values) {
  constexpr std::size_t kCount = 1024;
  std::array<float, kCount> widened;
  const auto* wanted = reinterpret_cast<const float*>(values.data());
  const std::size_t size = halfs.size() / 2;
  for (std::size_t begin = 0; begin < size; begin += kCount) {
    const std::size_t count = std::min(kCount, size - begin);
    kernels::Convert(halfs.subspan(begin * 2, count * 2), DType::kF16,
                     std::as_writable_bytes(std::span(widened).first(count)), DType::kF32);
    if (!std::equal(widened.begin(), widened.begin() + static_cast<std::ptrdiff_t>(count),
                    wanted + begin))
      return false;
  }
  return true;
}

[[noreturn]] void ThrowInexact(const CheckpointTensor& source) {
  throw Error(ErrorCode::kModelUnsupported,
              fmt::format("tensor \"{}\": its MXFP4 has numbers beyond fp16, in which it cannot be "
                          "held as it is; give --weight-bits 16",
                          Printable(source.name)));
}

// How weights beyond fp16 are read.
std::string_view OverflowRemedy(const Checkpoint& checkpoint, const TensorSpec& spec) {
  if (IsQuantised(spec.dtype)) return "leave --weight-bits out";
  if (checkpoint.format() == "GGUF")
    return "leave --weight-bits out, if it is given, or get the file in BF16";
  return "set \"torch_dtype\" in config.json to \"bfloat16\"";
}

[[noreturn]] void ThrowOverflow(const Checkpoint& checkpoint, const CheckpointTensor& source,
                                const TensorSpec& spec) {
  throw Error(ErrorCode::kModelUnsupported,
              fmt::format("tensor \"{}\" holds {} values that {} cannot hold; {}",
                          Printable(source.name), DTypeName(source.dtype),
                          DTypeName(IsQuantised(spec.dtype) ? DType::kF16 : spec.dtype),
                          OverflowRemedy(checkpoint, spec)));
}

// Codes are all valid; what they count in may not be.
void CheckGroups(const CheckpointTensor& source, const TensorSpec& spec,
                 std::span<const std::byte> rows) {
  const int64_t bad = kernels::FindNonFiniteGroup(rows, spec.dtype);
  if (bad < 0) return;
  throw Error(
      ErrorCode::kNonFinite,
      fmt::format("tensor \"{}\" holds NaN or infinity in group {} of a row; {}",
                  Printable(source.name), bad % (spec.row_bytes() / GroupBytes(spec.dtype)),
                  source.held ? "get an undamaged checkpoint, or give --allow-nonfinite-weights"
                              : "convert the model again"));
}

}  // namespace

WeightReader::WeightReader(const Checkpoint& checkpoint, const WeightMap& map,
                           NonFiniteWeights nonfinite, int num_workers, int64_t stage_bytes)
    : checkpoint_(checkpoint),
      map_(map),
      nonfinite_(nonfinite),
      stage_bytes_(stage_bytes),
      staging_(num_workers * stage_bytes) {
  SPILLWAY_CHECK(stage_bytes >= 4096 && stage_bytes % 64 == 0);
}

const FoundTensor& WeightReader::Found(const WeightRun& run) const {
  return map_.tensors[static_cast<std::size_t>(run.layer)][static_cast<std::size_t>(run.tensor)];
}

const CheckpointTensor& WeightReader::Source(const WeightRun& run) const {
  return checkpoint_.tensors()[static_cast<std::size_t>(Found(run).index)];
}

void WeightReader::Read(const WeightRun& run, std::span<std::byte> out, int worker) const {
  ThrowIfStopRequested();
  const CheckpointTensor& source = Source(run);
  if (IsQuantised(run.spec->dtype)) return ReadQuantised(run, out, worker);
  if (source.dtype != run.spec->dtype) return ReadAs(run.spec->dtype, run, out, StageOf(worker));
  ReadPublished(checkpoint_, Found(run), run.spec->cols, run.first_element, out);
  CheckFinite(source, out, run.first_element);
}

int64_t WeightReader::UnitsOfRun(const WeightRun& run, int64_t bytes) const {
  const int64_t units = std::max<int64_t>(1, bytes / run.spec->unit_bytes());
  return WholeRows(run, units * run.spec->unit_elements()) / run.spec->unit_elements();
}

// Elements of whole rows among so many of a transposed matrix; all where not even one row is whole.
int64_t WeightReader::WholeRows(const WeightRun& run, int64_t num_elements) const {
  const int64_t cols = run.spec->cols;
  if (!Found(run).transposed || num_elements < cols) return num_elements;
  return num_elements / cols * cols;
}

// Rows of groups as they are, or made of halfs: what a 16-bit model would hold is what is
// quantised, whatever the file's type.
void WeightReader::ReadQuantised(const WeightRun& run, std::span<std::byte> out, int worker) const {
  const TensorSpec& spec = *run.spec;
  const CheckpointTensor& source = Source(run);
  if (source.dtype == spec.dtype) {
    checkpoint_.Read(Found(run).index, run.first_element / spec.cols * spec.row_bytes(), out);
    return CheckGroups(source, spec, out);
  }
  if (source.held == spec.dtype) return ReadHeld(run, out);
  // A quarter of the staging for halfs, so that fp32 has room beside them.
  const std::span<std::byte> stage = StageOf(worker);
  const auto half_bytes = static_cast<int64_t>(stage.size()) / 4 / 128 * 128;
  const int64_t fit = half_bytes / 2;
  const int64_t cols = std::min(fit, spec.cols);
  const int64_t num_rows = static_cast<int64_t>(out.size()) / spec.row_bytes();
  const int64_t rows = std::max<int64_t>(1, fit / spec.cols);
  for (int64_t row = 0; row < num_rows; row += rows) {
    for (int64_t col = 0; col < spec.cols; col += cols) {
      const ElementBox box = {row, std::min(rows, num_rows - row), col,
                              std::min(cols, spec.cols - col)};
      WeightRun part = run;
      part.first_element += row * spec.cols + col;
      const std::span<std::byte> halfs = stage.first(static_cast<std::size_t>(box.size() * 2));
      ReadAs(DType::kF16, part, halfs, stage.subspan(static_cast<std::size_t>(half_bytes)));
      QuantiseBox(spec, box, halfs, out);
    }
  }
}

// Codes as they are published.
void WeightReader::ReadHeld(const WeightRun& run, std::span<std::byte> out) const {
  const TensorSpec& spec = *run.spec;
  const FoundTensor& found = Found(run);
  const auto row_bytes = static_cast<std::size_t>(spec.row_bytes());
  int64_t row = run.first_element / spec.cols;
  while (!out.empty()) {
    const auto left = static_cast<int64_t>(out.size() / row_bytes);
    const int64_t count = std::min(left, found.NumTogether(row));
    const std::span<std::byte> part = out.first(static_cast<std::size_t>(count) * row_bytes);
    const int64_t published = found.stacked.index * found.num_rows + found.PublishedRow(row);
    checkpoint_.ReadRows(found.index, published, part);
    CheckGroups(Source(run), spec, part);
    row += count;
    out = out.subspan(part.size());
  }
}

void WeightReader::ReadAs(DType to, const WeightRun& run, std::span<std::byte> out,
                          std::span<std::byte> stage) const {
  const CheckpointTensor& source = Source(run);
  const int64_t from_bytes = DTypeBytes(source.dtype);
  const int64_t num_elements = static_cast<int64_t>(out.size()) / DTypeBytes(to);
  const int64_t step = WholeRows(run, static_cast<int64_t>(stage.size()) / from_bytes);
  for (int64_t at = 0; at < num_elements; at += step) {
    const int64_t count = std::min(step, num_elements - at);
    const std::span<std::byte> read = stage.first(static_cast<std::size_t>(count * from_bytes));
    ReadPublished(checkpoint_, Found(run), run.spec->cols, run.first_element + at, read);
    CheckFinite(source, read, run.first_element + at);
    const std::span<std::byte> part = out.subspan(static_cast<std::size_t>(at * DTypeBytes(to)),
                                                  static_cast<std::size_t>(count * DTypeBytes(to)));
    const bool exact = run.spec->dtype == DType::kMxfp4 && !source.coded.empty();
    const int64_t num_overflows = kernels::Convert(read, source.dtype, part, to);
    if (exact && !AreExact(part, read)) ThrowInexact(source);
    if (num_overflows > 0) ThrowOverflow(checkpoint_, source, *run.spec);
  }
}

std::span<std::byte> WeightReader::StageOf(int worker) const {
  return staging_.View({worker * stage_bytes_, stage_bytes_});
}

void WeightReader::CheckFinite(const CheckpointTensor& source, std::span<const std::byte> data,
                               int64_t first_element) const {
  if (nonfinite_ == NonFiniteWeights::kAllow) return;
  const int64_t bad = kernels::FindNonFinite(data, source.dtype);
  if (bad < 0) return;
  throw Error(ErrorCode::kNonFinite,
              fmt::format("tensor \"{}\" holds NaN or infinity at element {}; get an undamaged "
                          "checkpoint, or give --allow-nonfinite-weights and keep 16 bits",
                          Printable(source.name), first_element + bad));
}

}  // namespace spillway
