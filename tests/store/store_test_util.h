// A small model of known bytes, and stores of it.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "src/base/hash.h"
#include "src/store/store.h"
#include "src/store/write_store.h"
#include "tests/io/disk_test_util.h"

namespace spillway::testing {

// Two blocks of hidden size 64; the embedding has 5 MiB, three tiles.
inline ModelShape SmallShape() {
  ModelShape shape = *BuiltInShape("opt-125m");
  shape.name = "small";
  shape.num_layers = 2;
  shape.hidden_size = 64;
  shape.embed_size = 64;
  shape.ffn_size = 256;
  shape.num_heads = 4;
  shape.num_kv_heads = 4;
  shape.head_dim = 16;
  shape.vocab_size = 41234;
  shape.max_positions = 100;
  return shape;
}

// The bytes that rows of a tensor have: different for every tensor and place.
inline void FillRows(const StoredTensorTable& tensor, RowRange rows, std::span<std::byte> out) {
  const uint64_t seed = BlockHash(std::as_bytes(std::span(tensor.spec.name)));
  const auto row_bytes = static_cast<std::size_t>(tensor.spec.row_bytes());
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const auto at = static_cast<std::size_t>(row - rows.begin) * row_bytes;
    std::memset(&out[at], static_cast<int>(seed + static_cast<uint64_t>(row)) & 0xFF, row_bytes);
    if (row_bytes >= 8) std::memcpy(&out[at], &row, sizeof(row));
  }
}

inline StoreJob SmallJob() {
  StoreJob job;
  job.model = MakeModel(SmallShape());
  job.content_key = "0123456789abcdef";
  job.fill = FillRows;
  return job;
}

inline void MakeStore(const StoreJob& job, const std::filesystem::path& folder,
                      const std::string& faults = "") {
  const BlockMemory staging(2 * StoreTileBytes(job.model));
  DiskQueue queue(MakeBackend(DiskBackendKind::kAuto, {}, faults));
  WriteStore(job, folder, queue, staging.all());
}

// Reads every tile; throws at the first that is not right.
inline void ReadWholeStore(const Store& store) {
  for (std::size_t tensor = 0; tensor < store.tensors().size(); ++tensor) {
    const StoredTensorTable& table = store.tensors()[tensor];
    for (std::size_t tile = 0; tile < table.tiles.size(); ++tile) {
      const BlockMemory memory(table.tiles[tile].padded_bytes());
      const BlockMemory expected(table.tiles[tile].padded_bytes());
      store.ReadTile(static_cast<int64_t>(tensor), static_cast<int64_t>(tile), memory.all());
      FillRows(table, table.tiles[tile].rows, expected.Part(0, table.tiles[tile].bytes));
      EXPECT_TRUE(SameBytes(memory.all(), expected.all())) << table.spec.name << " " << tile;
    }
  }
}

inline std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void WriteText(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace spillway::testing
