#include "src/model/load_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/convert.h"
#include "spillway/error.h"
#include "src/stop_signal.h"

namespace spillway {
namespace {

// Bytes of a tile that one task reads: long enough for the disk, short enough for the threads to
// share a tensor.
constexpr int64_t kReadBytes = 4 << 20;

// A run of elements of one tensor, and where they go.
struct Piece {
  const PlannedTensor* tensor = nullptr;
  int64_t source = 0;  // index in the checkpoint
  int64_t first_element = 0;
  int64_t num_elements = 0;
  std::byte* destination = nullptr;
};

void AddPieces(const PlannedTensor& tensor, int64_t source, const HostArena& arena,
               std::vector<Piece>& pieces) {
  const int64_t element_bytes = DTypeBytes(tensor.spec.dtype);
  const int64_t step = kReadBytes / element_bytes;
  for (const WeightTile& tile : tensor.tiles) {
    const int64_t begin = tile.row_begin * tensor.spec.cols;
    const int64_t end = tile.row_end * tensor.spec.cols;
    for (int64_t at = begin; at < end; at += step) {
      const int64_t count = std::min(step, end - at);
      const Region place = {tile.offset + (at - begin) * element_bytes, count * element_bytes};
      pieces.push_back({&tensor, source, at, count, arena.View(place).data()});
    }
  }
}

[[noreturn]] void RefuseOverflow(const Piece& piece, const CheckpointTensor& source) {
  throw Error(
      ErrorCode::kModelUnsupported,
      fmt::format(
          "tensor \"{}\" holds {} values that {} cannot hold; convert the checkpoint to bf16",
          Printable(source.name), DTypeName(source.dtype), DTypeName(piece.tensor->spec.dtype)));
}

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, NonFiniteWeights nonfinite, std::span<std::byte> staging,
         int num_threads)
      : checkpoint_(checkpoint),
        nonfinite_(nonfinite),
        staging_(staging),
        stage_bytes_(static_cast<int64_t>(staging.size()) / num_threads / 64 * 64) {
    SPILLWAY_CHECK(stage_bytes_ > 0);
  }

  void Load(const Piece& piece, int worker) const {
    ThrowIfStopRequested();
    const CheckpointTensor& source = checkpoint_.tensors()[static_cast<std::size_t>(piece.source)];
    const DType to = piece.tensor->spec.dtype;
    const std::span<std::byte> place(piece.destination,
                                     static_cast<std::size_t>(piece.num_elements * DTypeBytes(to)));
    if (source.dtype == to) {
      checkpoint_.Read(piece.source, piece.first_element * DTypeBytes(to), place);
      CheckFinite(source, place, piece.first_element);
    } else {
      LoadConverted(piece, source, place, worker);
    }
  }

 private:
  void LoadConverted(const Piece& piece, const CheckpointTensor& source, std::span<std::byte> place,
                     int worker) const {
    const DType to = piece.tensor->spec.dtype;
    const int64_t from_bytes = DTypeBytes(source.dtype);
    const int64_t step = stage_bytes_ / from_bytes;
    for (int64_t at = 0; at < piece.num_elements; at += step) {
      const int64_t count = std::min(step, piece.num_elements - at);
      const std::span<std::byte> stage =
          staging_.subspan(static_cast<std::size_t>(worker * stage_bytes_),
                           static_cast<std::size_t>(count * from_bytes));
      checkpoint_.Read(piece.source, (piece.first_element + at) * from_bytes, stage);
      CheckFinite(source, stage, piece.first_element + at);
      const std::span<std::byte> out =
          place.subspan(static_cast<std::size_t>(at * DTypeBytes(to)),
                        static_cast<std::size_t>(count * DTypeBytes(to)));
      if (kernels::Convert(stage, source.dtype, out, to) > 0) RefuseOverflow(piece, source);
    }
  }

  void CheckFinite(const CheckpointTensor& source, std::span<const std::byte> data,
                   int64_t first_element) const {
    if (nonfinite_ == NonFiniteWeights::kAllow) return;
    const int64_t bad = kernels::FindNonFinite(data, source.dtype);
    if (bad < 0) return;
    throw Error(
        ErrorCode::kNonFinite,
        fmt::format(
            "tensor \"{}\" holds NaN or infinity at element {}; get an undamaged checkpoint, or "
            "--allow-nonfinite-weights",
            Printable(source.name), first_element + bad));
  }

  const Checkpoint& checkpoint_;
  NonFiniteWeights nonfinite_;
  std::span<std::byte> staging_;
  int64_t stage_bytes_;
};

}  // namespace

void LoadWeights(const Plan& plan, const Checkpoint& checkpoint, const WeightMap& map,
                 const HostArena& arena, ThreadPool& pool, NonFiniteWeights nonfinite) {
  std::vector<Piece> pieces;
  for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
    const std::vector<PlannedTensor>& tensors = plan.layers[layer].tensors;
    for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
      AddPieces(tensors[tensor], map.indices[layer][tensor], arena, pieces);
    }
  }
  // The workspace is not in use yet; it stages what has to be converted.
  const Loader loader(checkpoint, nonfinite, arena.View(plan.workspace.matmul), pool.num_threads());
  auto load = [&](int64_t piece, int worker) {
    loader.Load(pieces[static_cast<std::size_t>(piece)], worker);
  };
  pool.Run(static_cast<int64_t>(pieces.size()), load);
}

}  // namespace spillway
