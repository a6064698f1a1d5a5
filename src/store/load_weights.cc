#include "src/store/load_weights.h"

#include <algorithm>
#include <vector>

namespace spillway {
namespace {

// Bytes of a tile that one task reads: long enough for the disk, short enough for the threads to
// share a tensor.
constexpr int64_t kReadBytes = kStagedReadBytes;

struct Piece {
  WeightRun run;
  std::span<std::byte> place;
};

void AddPieces(const WeightReader& reader, WeightRun run, const WeightTile& tile,
               const Arena& arena, std::vector<Piece>& pieces) {
  const int64_t unit_bytes = run.spec->unit_bytes();
  const int64_t step = reader.UnitsOfRun(run, kReadBytes);
  const int64_t begin = tile.row_begin * run.spec->cols;
  const int64_t num_units = TileBytes(*run.spec, tile) / unit_bytes;
  for (int64_t at = 0; at < num_units; at += step) {
    const int64_t count = std::min(step, num_units - at);
    run.first_element = begin + at * run.spec->unit_elements();
    pieces.push_back({run, arena.View({tile.offset + at * unit_bytes, count * unit_bytes})});
  }
}

}  // namespace

void LoadWeights(const Plan& plan, Tier tier, const WeightReader& reader, const Arena& arena,
                 ThreadPool& pool, const WeightUpload* upload) {
  std::vector<Piece> pieces;
  for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
    const std::vector<PlannedTensor>& tensors = plan.layers[layer].tensors;
    for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
      const WeightRun run = {static_cast<int64_t>(layer), static_cast<int64_t>(tensor),
                             &tensors[tensor].spec, 0};
      for (const WeightTile& tile : tensors[tensor].tiles) {
        if (tile.tier == tier) AddPieces(reader, run, tile, arena, pieces);
      }
    }
  }
  auto load = [&](int64_t index, int worker) {
    const Piece& piece = pieces[static_cast<std::size_t>(index)];
    if (upload == nullptr) return reader.Read(piece.run, piece.place, worker);
    const std::span<std::byte> staged = upload->staging.subspan(
        static_cast<std::size_t>(worker * kStagedReadBytes), piece.place.size());
    reader.Read(piece.run, staged, worker);
    upload->copy(piece.place.data(), staged);
  };
  pool.Run(static_cast<int64_t>(pieces.size()), load);
}

}  // namespace spillway
