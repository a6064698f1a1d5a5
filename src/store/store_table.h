// StoreTable: what store.json says, as a value, and its text form. The file is
//   {"version":1,"xxh3":"<16 digits>","store":{...}}
// where the digits are the hash of every byte after them, so that damage is known before anything
// is believed. Tiles carry the hashes of weights.bin, and companions theirs: the file as a whole
// vouches for all bytes.
// Pure functions of values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/model.h"
#include "spillway/tile.h"

namespace spillway {

inline constexpr const char* kStoreTableName = "store.json";
inline constexpr const char* kStoreWeightsName = "weights.bin";
inline constexpr int64_t kStoreVersion = 1;

// Rows of a tensor in weights.bin, padded with zeros to kTileAlignBytes.
struct StoredTile {
  RowRange rows;
  int64_t offset = 0;
  int64_t bytes = 0;  // without the padding
  uint64_t hash = 0;  // BlockHash with the padding

  int64_t padded_bytes() const {
    return (bytes + kTileAlignBytes - 1) / kTileAlignBytes * kTileAlignBytes;
  }
  bool operator==(const StoredTile&) const = default;
};

struct StoredTensorTable {
  TensorSpec spec;
  int64_t layer = 0;  // of the model
  int64_t index = 0;  // in that layer
  std::vector<StoredTile> tiles;
};

// A companion file of the store (companions.h).
struct StoredCompanion {
  std::string name;
  uint64_t hash = 0;  // TextHash
};

struct StoreTable {
  std::string content_key;
  ModelShape shape;
  int64_t weights_bytes = 0;                // of weights.bin
  std::vector<StoredTensorTable> tensors;   // in the model's order
  std::vector<StoredCompanion> companions;  // by name; none in stores of before they were sealed
};

// The table of a store of this model with every tile in its place and no hashes yet: tensors in
// execution order, each tile at the next 4 KiB boundary, so that a layer is one run of the file.
StoreTable LayOutStore(const Model& model, std::string content_key);

// The most memory that one tile takes, padding included.
int64_t LongestTileBytes(const StoreTable& table);

std::string StoreTableText(const StoreTable& table);

// Checks all of it: hash, version, every key, type and range, the shape, and that tensors and tiles
// are those of LayOutStore.
// Throws: Error kModelMalformed, kModelUnsupported (version), kModelInconsistent.
StoreTable ParseStoreTable(std::string_view text);

// The head with the hash of `body`, and `body`: what makes a table valid. `body` begins after the
// comma: "\"store\":{...}}".
std::string SealStoreText(std::string_view body);

// All fields of a shape but its name, as one line of JSON: two folders may have the same weights.
std::string ShapeText(ModelShape shape);

}  // namespace spillway
