// Damaged and crafted stores: the right code before any data is read, or at the tile.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/store/store_test_util.h"
#include "tests/trace_case.h"

namespace spillway::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class StoreCorruptionTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    temp_ = new TemporaryFolder(kMemoryRoot);
    MakeStore(SmallJob(), temp_->path() / "good");
    text_ = ReadText(temp_->path() / "good" / "store.json");
  }
  static void TearDownTestSuite() {
    delete temp_;
    temp_ = nullptr;
  }

  void SetUp() override { fs::copy(temp_->path() / "good", folder()); }
  void TearDown() override { fs::remove_all(folder()); }

  static fs::path folder() { return temp_->path() / "bad"; }
  static fs::path table() { return folder() / "store.json"; }
  static fs::path weights() { return folder() / "weights.bin"; }

  // The table with its store changed by `edit`, its hash right.
  static std::string Crafted(const std::function<void(Json&)>& edit) {
    Json store = Json::parse(text_)["store"];
    edit(store);
    return SealStoreText("\"store\":" + store.dump() + "}");
  }
  void ExpectOpen(ErrorCode code, const std::string& what) {
    ExpectError(code, what, [] { OpenStore(folder()); });
  }

  inline static TemporaryFolder* temp_ = nullptr;
  inline static std::string text_;
};

TEST_F(StoreCorruptionTest, AnyFlippedBitOfTheTable) {
  for (std::size_t at = 0; at < text_.size(); at += at < 64 ? 1 : 37) {
    for (const int bit : {0, 3, 7}) {
      SCOPED_TRACE(CaseOf("byte", at, "bit", bit));
      std::string bad = text_;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      try {
        ParseStoreTable(bad);
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_EQ(ExitStatus(error.code()), error.code() == ErrorCode::kModelUnsupported ? 11 : 10);
      }
    }
  }
}

TEST_F(StoreCorruptionTest, CutOffTable) {
  for (std::size_t size = 0; size < text_.size(); size += size < 64 ? 1 : 101) {
    SCOPED_TRACE(size);
    ExpectError(ErrorCode::kModelMalformed, "store.json",
                [&] { ParseStoreTable(text_.substr(0, size)); });
  }
  fs::resize_file(table(), 0);
  ExpectOpen(ErrorCode::kModelMalformed, "store.json");
}

TEST_F(StoreCorruptionTest, AnyFlippedBitOfTheWeights) {
  const Store good = OpenStore(temp_->path() / "good");
  const std::string bytes = ReadText(weights());
  // First, middle and last byte of every tile, and of its padding.
  for (std::size_t tensor = 0; tensor < good.tensors().size(); ++tensor) {
    const StoredTensorTable& stored = good.tensors()[tensor];
    for (std::size_t tile = 0; tile < stored.tiles.size(); ++tile) {
      const StoredTile& place = stored.tiles[tile];
      const BlockMemory memory(place.padded_bytes());
      for (const int64_t at :
           {int64_t{0}, place.bytes / 2, place.bytes - 1, place.bytes, place.padded_bytes() - 1}) {
        if (at >= place.padded_bytes()) continue;
        std::memcpy(memory.all().data(), &bytes[static_cast<std::size_t>(place.offset)],
                    memory.all().size());
        memory.all()[static_cast<std::size_t>(at)] ^= std::byte{16};
        ExpectError(ErrorCode::kCorrupt, stored.spec.name, [&] {
          good.Verify(static_cast<int64_t>(tensor), static_cast<int64_t>(tile), memory.all());
        });
      }
    }
  }
}

TEST_F(StoreCorruptionTest, DamageOnDiskIsFoundWhenTheTileIsRead) {
  std::string bytes = ReadText(weights());
  bytes.back() = 1;  // padding of the last tensor
  WriteText(weights(), bytes);
  const Store store = OpenStore(folder());
  ExpectError(ErrorCode::kCorrupt, "decoder.final_layer_norm.bias", [&] { ReadWholeStore(store); });
}

TEST_F(StoreCorruptionTest, SizeOfTheWeights) {
  const auto size = fs::file_size(weights());
  fs::resize_file(weights(), size - 4096);
  ExpectOpen(ErrorCode::kModelTruncated, "weights.bin");
  fs::resize_file(weights(), size + 1);
  ExpectOpen(ErrorCode::kModelInconsistent, "weights.bin");
  fs::resize_file(weights(), 0);
  ExpectOpen(ErrorCode::kModelTruncated, "weights.bin");
}

TEST_F(StoreCorruptionTest, MissingParts) {
  fs::remove(weights());
  ExpectOpen(ErrorCode::kModelMissing, "weights.bin");
  fs::remove(table());
  ExpectOpen(ErrorCode::kModelMissing, "holds no converted model");
  WriteText(weights(), "x");
  ExpectOpen(ErrorCode::kModelTruncated, "did not finish");
  fs::remove_all(folder());
  ExpectOpen(ErrorCode::kModelMissing, "No such file");
}

TEST_F(StoreCorruptionTest, LinksAreNotFollowed) {
  fs::remove(weights());
  fs::create_symlink(temp_->path() / "good" / "weights.bin", weights());
  ExpectOpen(ErrorCode::kPath, "weights.bin: is a symbolic link");
}

TEST_F(StoreCorruptionTest, OtherVersion) {
  std::string newer = text_;
  newer[std::string("{\"version\":").size()] = '2';
  WriteText(table(), newer);
  ExpectOpen(ErrorCode::kModelUnsupported, "another version");
}

constexpr int64_t kHuge = int64_t{1} << 62;

struct Crafting {
  const char* name;
  ErrorCode code;
  std::function<void(Json&)> edit;
};

Json& Tile(Json& store, std::size_t tile) { return store["tensors"][0]["tiles"][tile]; }

const std::vector<Crafting>& Craftings() {
  constexpr auto kBad = ErrorCode::kModelInconsistent;
  constexpr auto kForm = ErrorCode::kModelMalformed;
  static const std::vector<Crafting> all = {
      {"UnknownKey", kForm, [](Json& store) { store["extra"] = 1; }},
      {"UnknownKeyInShape", kForm, [](Json& store) { store["shape"]["extra"] = 1; }},
      {"UnknownKeyInTensor", kForm, [](Json& store) { store["tensors"][0]["extra"] = 1; }},
      {"NoShape", kForm, [](Json& store) { store.erase("shape"); }},
      {"NoTensors", kForm, [](Json& store) { store.erase("tensors"); }},
      {"NoKey", kForm, [](Json& store) { store.erase("content_key"); }},
      {"KeyIsANumber", kForm, [](Json& store) { store["content_key"] = 7; }},
      {"ShapeIsAList", kForm, [](Json& store) { store["shape"] = Json::array(); }},
      {"TensorIsANumber", kForm, [](Json& store) { store["tensors"][0] = 3; }},
      {"TensorsAreANumber", kBad, [](Json& store) { store["tensors"] = 3; }},
      {"TensorMissing", kBad, [](Json& store) { store["tensors"].erase(3); }},
      {"TensorRenamed", kBad, [](Json& store) { store["tensors"][0]["name"] = "../../x"; }},
      {"TensorReshaped", kBad, [](Json& store) { store["tensors"][0]["rows"] = 3; }},
      {"TensorRetyped", kBad, [](Json& store) { store["tensors"][0]["dtype"] = "fp32"; }},
      {"TileMissing", kBad, [](Json& store) { store["tensors"][0]["tiles"].erase(1); }},
      {"TileTwice", kBad, [](Json& store) { Tile(store, 1) = Tile(store, 0); }},
      {"TileOverlaps", kBad, [](Json& store) { Tile(store, 1)[2] = 4096; }},
      {"TileOutside", kBad, [](Json& store) { Tile(store, 1)[2] = kHuge; }},
      {"TileNegative", kBad, [](Json& store) { Tile(store, 1)[2] = -4096; }},
      {"TileUnaligned", kBad, [](Json& store) { Tile(store, 0)[2] = 1; }},
      {"TileTooLong", kBad, [](Json& store) { Tile(store, 0)[3] = kHuge; }},
      {"TileFraction", kBad, [](Json& store) { Tile(store, 0)[3] = 1.5; }},
      {"TileRows", kBad, [](Json& store) { Tile(store, 0)[1] = 5; }},
      {"TileShort", kForm, [](Json& store) { Tile(store, 0).erase(0); }},
      {"TileIsAString", kForm, [](Json& store) { Tile(store, 0) = "x"; }},
      {"HashIsANumber", kForm, [](Json& store) { Tile(store, 0)[4] = 1; }},
      {"HashIsShort", kForm, [](Json& store) { Tile(store, 0)[4] = "abc"; }},
      {"HashIsNoHash", kForm, [](Json& store) { Tile(store, 0)[4] = "zzzzzzzzzzzzzzzz"; }},
      {"HashIsInCapitals", kForm, [](Json& store) { Tile(store, 0)[4] = "ABCDEFABCDEFABCD"; }},
      {"WeightsBytes", kBad, [](Json& store) { store["weights_bytes"] = 1; }},
      {"Layers", kBad, [](Json& store) { store["shape"]["num_layers"] = 3; }},
      {"LayersZero", kBad, [](Json& store) { store["shape"]["num_layers"] = 0; }},
      {"LayersNegative", kBad, [](Json& store) { store["shape"]["num_layers"] = -1; }},
      {"LayersText", kBad, [](Json& store) { store["shape"]["num_layers"] = "2"; }},
      {"HugeShape", kBad,
       [](Json& store) {
         store["shape"]["num_layers"] = 4096;
         store["shape"]["hidden_size"] = store["shape"]["ffn_size"] = 1 << 20;
         store["shape"]["head_dim"] = 1 << 18;
       }},
      {"HeadsZero", kBad, [](Json& store) { store["shape"]["num_heads"] = 0; }},
      {"HeadsDoNotFit", kBad, [](Json& store) { store["shape"]["num_heads"] = 5; }},
      {"KvHeadsDoNotFit", kBad, [](Json& store) { store["shape"]["num_kv_heads"] = 3; }},
      {"Family", ErrorCode::kModelUnsupported,
       [](Json& store) { store["shape"]["family"] = "bert"; }},
      {"Activation", kBad, [](Json& store) { store["shape"]["activation"] = "tanh"; }},
      {"DType", kBad, [](Json& store) { store["shape"]["dtype"] = "fp8"; }},
      {"Epsilon", kBad, [](Json& store) { store["shape"]["norm_epsilon"] = -1.0; }},
      {"TokenId", kBad, [](Json& store) { store["shape"]["eos"] = Json{1 << 30}; }},
      {"Deep", kForm,
       [](Json& store) {
         Json deep = 1;
         for (int level = 0; level < 100; ++level) deep = Json::array({deep});
         store["extra"] = deep;
       }},
  };
  return all;
}

TEST_F(StoreCorruptionTest, CraftedTables) {
  for (const Crafting& crafting : Craftings()) {
    SCOPED_TRACE(crafting.name);
    WriteText(table(), Crafted(crafting.edit));
    ExpectOpen(crafting.code, "store.json");
  }
}

TEST_F(StoreCorruptionTest, UnchangedCraftingIsGood) {
  WriteText(table(), Crafted([](Json&) {}));
  EXPECT_NO_THROW(ReadWholeStore(OpenStore(folder())));
  WriteText(table(), SealStoreText("\"store\":{}, }"));
  ExpectOpen(ErrorCode::kModelMalformed, "store.json");
}

// Sealed garbage: whatever gets past the hash is an Error too.
TEST_F(StoreCorruptionTest, RandomChangesOfASealedTable) {
  std::mt19937_64 random(1);
  const std::string body = text_.substr(text_.find("\"store\""));
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(CaseOf("round", round));
    std::string bad = body;
    for (int change = 0; change < 1 + round % 4; ++change) {
      bad[random() % bad.size()] = "0123456789-+.eE{}[]\",:atf \\\0"[random() % 29];
    }
    try {
      const StoreTable table = ParseStoreTable(SealStoreText(bad));
      EXPECT_EQ(StoreTableText(table), SealStoreText(bad));  // a name, key or hash was changed
    } catch (const Error& error) {
      EXPECT_THAT((std::vector{10, 11}), ::testing::Contains(ExitStatus(error.code())));
    }
  }
}

}  // namespace
}  // namespace spillway::testing
