#include "src/store/store_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "spillway/error.h"
#include "src/base/hash.h"
#include "src/base/json_text.h"
#include "src/checkpoint/bounded_json.h"
#include "src/store/companions.h"
#include "src/store/shape_json.h"

namespace spillway {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kAnyVersion = "{\"version\":";
constexpr std::string_view kHead = "{\"version\":1,\"xxh3\":\"";
constexpr std::size_t kDigits = 16;
constexpr const char* kCompanions = "companions";
constexpr std::string_view kAfterDigits = "\",";
constexpr std::size_t kBodyBegin = kHead.size() + kDigits + kAfterDigits.size();

// No tile is longer, and none takes fewer bytes of table.
constexpr int64_t kMaxTileBytes = 8 << 20;
constexpr int64_t kMinTileTextBytes = 24;

[[noreturn]] void Throw(ErrorCode code, std::string_view what) {
  throw Error(code, fmt::format("{}: {}; convert the model again", kStoreTableName, what));
}

// All but the hash.
Json TileToJson(const StoredTile& tile) {
  return Json{tile.rows.begin, tile.rows.end, tile.offset, tile.bytes};
}

Json TensorToJson(const StoredTensorTable& tensor) {
  return Json{{"name", tensor.spec.name},
              {"layer", tensor.layer},
              {"rows", tensor.spec.rows},
              {"cols", tensor.spec.cols},
              {"dtype", DTypeName(tensor.spec.dtype)}};
}

std::string BodyText(const StoreTable& table) {
  Json tensors = Json::array();
  for (const StoredTensorTable& tensor : table.tensors) {
    Json out = TensorToJson(tensor);
    Json& tiles = out["tiles"] = Json::array();
    for (const StoredTile& tile : tensor.tiles) {
      Json entry = TileToJson(tile);
      entry.push_back(HashDigits(tile.hash));
      tiles.push_back(std::move(entry));
    }
    tensors.push_back(std::move(out));
  }
  Json store = {{"content_key", table.content_key},
                {"shape", ShapeToJson(table.shape)},
                {"weights_bytes", table.weights_bytes},
                {"tensors", std::move(tensors)}};
  for (const StoredCompanion& companion : table.companions)
    store[kCompanions][companion.name] = HashDigits(companion.hash);
  return "\"store\":" + JsonText(store) + "}";
}

// Hash of `what`.
uint64_t ParseHash(const Json& json, const std::string& what) {
  uint64_t value = 0;
  const std::string text = json.is_string() ? json.get<std::string>() : std::string();
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value, 16);
  if (error != std::errc{} || at != end || text.size() != kDigits) {
    Throw(ErrorCode::kModelMalformed, fmt::format("a hash of {} is not 16 digits", what));
  }
  return value;
}

// Fills in the hashes of a tensor that is laid out as the file has to say.
void ReadTensor(const Json& json, StoredTensorTable& tensor) {
  const std::string name = Printable(tensor.spec.name);
  Json expected = TensorToJson(tensor);
  if (!json.is_object() || !json.contains("tiles") || !json["tiles"].is_array()) {
    Throw(ErrorCode::kModelMalformed, fmt::format("tensor \"{}\" has no tiles", name));
  }
  for (const auto& [key, value] : expected.items()) {
    if (json.contains(key) && json[key] == value) continue;
    Throw(ErrorCode::kModelInconsistent,
          fmt::format("\"{}\" of tensor \"{}\" is not {}", key, name, Printable(value.dump())));
  }
  const Json& tiles = json["tiles"];
  if (tiles.size() != tensor.tiles.size()) {
    Throw(ErrorCode::kModelInconsistent, fmt::format("tensor \"{}\" has {} tiles, but needs {}",
                                                     name, tiles.size(), tensor.tiles.size()));
  }
  for (std::size_t at = 0; at < tiles.size(); ++at) {
    Json place = tiles[at];
    if (!place.is_array() || place.size() != 5) {
      Throw(ErrorCode::kModelMalformed,
            fmt::format("tile {} of tensor \"{}\" is not a list of 5", at, name));
    }
    tensor.tiles[at].hash = ParseHash(place[4], fmt::format("tensor \"{}\"", name));
    place.erase(4);
    if (place == TileToJson(tensor.tiles[at])) continue;
    Throw(ErrorCode::kModelInconsistent,
          fmt::format("tile {} of tensor \"{}\" is at {}, but has to be at {}", at, name,
                      Printable(place.dump()), TileToJson(tensor.tiles[at]).dump()));
  }
}

std::vector<StoredCompanion> ReadCompanionHashes(const Json& store) {
  std::vector<StoredCompanion> companions;
  const auto found = store.find(kCompanions);
  if (found == store.end()) return companions;
  for (const auto& [name, hash] : found->items()) {
    if (std::ranges::find(kCompanionNames, name) == kCompanionNames.end()) {
      Throw(ErrorCode::kModelMalformed,
            fmt::format("\"{}\" is no file of a store", Printable(name)));
    }
    companions.push_back({name, ParseHash(hash, name)});
  }
  return companions;
}

// A whole version number, and not ours.
bool IsOtherVersion(std::string_view text) {
  if (!text.starts_with(kAnyVersion)) return false;
  const std::string_view number =
      text.substr(kAnyVersion.size(), text.find(',') - kAnyVersion.size());
  const bool whole = !number.empty() && number.size() < 8 &&
                     number.find_first_not_of("0123456789") == std::string_view::npos;
  return whole && number != std::to_string(kStoreVersion);
}

void CheckSeal(std::string_view text) {
  if (!text.starts_with(kHead)) {
    if (IsOtherVersion(text)) {
      Throw(ErrorCode::kModelUnsupported, "the store is of another version");
    }
    Throw(ErrorCode::kModelMalformed, "not the table of a store");
  }
  const bool whole =
      text.size() > kBodyBegin &&
      text.substr(kBodyBegin - kAfterDigits.size(), kAfterDigits.size()) == kAfterDigits &&
      text.substr(kHead.size(), kDigits) == HashDigits(TextHash(text.substr(kBodyBegin)));
  if (!whole) Throw(ErrorCode::kModelMalformed, "damaged or cut off");
}

Json ParseBody(std::string_view text) {
  try {
    const Json root = ParseBoundedJson(text, kStoreTableName);
    const auto store = root.find("store");
    if (store != root.end() && store->is_object()) return *store;
  } catch (const Error&) {
    // The parser's advice is for a file that was downloaded.
  }
  Throw(ErrorCode::kModelMalformed, "not the JSON of a store");
}

const Json& Member(const Json& store, const char* key) {
  const auto found = store.find(key);
  if (found == store.end()) {
    Throw(ErrorCode::kModelMalformed, fmt::format("the key \"{}\" is missing", key));
  }
  return *found;
}

// Checked before anything is allocated for the tiles: a short table cannot ask for many.
void CheckExtent(const Model& model, std::size_t text_bytes) {
  const int64_t least_tiles = WeightBytes(model) / kMaxTileBytes;
  if (least_tiles > static_cast<int64_t>(text_bytes) / kMinTileTextBytes) {
    Throw(ErrorCode::kModelInconsistent, "the shape needs more tiles than are listed");
  }
}

}  // namespace

StoreTable LayOutStore(const Model& model, std::string content_key) {
  StoreTable table{std::move(content_key), model.shape, 0, {}, {}};
  int64_t layer_index = 0;
  for (const LayerSpec& layer : model.layers) {
    int64_t index = 0;
    for (const TensorSpec& spec : layer.tensors) {
      StoredTensorTable tensor{spec, layer_index, index++, {}};
      const TileSplit split = SplitIntoTiles(tensor.spec.rows, tensor.spec.cols, tensor.spec.dtype);
      for (int64_t at = 0; at < split.num_tiles; ++at) {
        const RowRange rows = split.Tile(at);
        tensor.tiles.push_back(
            {rows, table.weights_bytes, rows.size() * tensor.spec.row_bytes(), 0});
        table.weights_bytes += tensor.tiles.back().padded_bytes();
      }
      table.tensors.push_back(std::move(tensor));
    }
    ++layer_index;
  }
  return table;
}

int64_t LongestTileBytes(const StoreTable& table) {
  int64_t most = 0;
  for (const StoredTensorTable& tensor : table.tensors) {
    for (const StoredTile& tile : tensor.tiles) most = std::max(most, tile.padded_bytes());
  }
  return most;
}

std::string SealStoreText(std::string_view body) {
  return fmt::format("{}{}{}{}", kHead, HashDigits(TextHash(body)), kAfterDigits, body);
}

std::string StoreTableText(const StoreTable& table) { return SealStoreText(BodyText(table)); }

StoreTable ParseStoreTable(std::string_view text) {
  CheckSeal(text);
  const Json store = ParseBody(text);
  const Json& key = Member(store, "content_key");
  if (!key.is_string()) Throw(ErrorCode::kModelMalformed, "\"content_key\" is not a string");
  const Model model = MakeModel(ShapeFromJson(Member(store, "shape"), kStoreTableName));
  CheckExtent(model, text.size());
  StoreTable table = LayOutStore(model, key.get<std::string>());
  if (Member(store, "weights_bytes") != Json(table.weights_bytes)) {
    Throw(ErrorCode::kModelInconsistent,
          fmt::format("\"weights_bytes\" is not {}, which the shape needs", table.weights_bytes));
  }
  const Json& tensors = Member(store, "tensors");
  if (!tensors.is_array() || tensors.size() != table.tensors.size()) {
    Throw(ErrorCode::kModelInconsistent,
          fmt::format("the shape has {} tensors, the table another number", table.tensors.size()));
  }
  for (std::size_t at = 0; at < tensors.size(); ++at) ReadTensor(tensors[at], table.tensors[at]);
  table.companions = ReadCompanionHashes(store);
  // The text shows all other differences, above all unknown keys.
  if (StoreTableText(table) != text) {
    Throw(ErrorCode::kModelMalformed, "holds a key or a form that is not of a store");
  }
  return table;
}

std::string ShapeText(ModelShape shape) {
  shape.name.clear();
  return JsonText(ShapeToJson(shape));
}

}  // namespace spillway
