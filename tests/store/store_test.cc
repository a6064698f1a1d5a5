#include "src/store/store.h"

#include "tests/expect_error.h"
#include "tests/model_util.h"
#include "tests/store/store_test_util.h"

namespace spillway::testing {
namespace {

namespace fs = std::filesystem;

TEST(Store, KeepsShapeAndBytes) {
  const TemporaryFolder temp(kDiskRoot);
  MakeStore(SmallJob(), temp.path() / "small");
  EXPECT_FALSE(fs::exists(temp.path() / "small.part"));
  EXPECT_TRUE(IsStoreFolder(temp.path() / "small"));
  for (const DiskMode mode : {DiskMode::kDirect, DiskMode::kBuffered}) {
    SCOPED_TRACE(mode == DiskMode::kDirect ? "direct" : "buffered");
    const Store store = OpenStore(temp.path() / "small", mode);
    EXPECT_EQ(ShapeText(store.shape()), ShapeText(SmallShape()));
    EXPECT_EQ(store.content_key(), "0123456789abcdef");
    EXPECT_EQ(store.MaxTileBytes(), StoreTileBytes(MakeModel(SmallShape())));
    ReadWholeStore(store);
  }
}

TEST(Store, HoldsTheTensorsOfAllLayersInOrder) {
  const TemporaryFolder temp(kMemoryRoot);
  MakeStore(SmallJob(), temp.path() / "small");
  const Store store = OpenStore(temp.path() / "small");
  const std::vector<LayerSpec> layers = LayersOf(SmallShape());
  std::size_t first = 0;
  for (const LayerSpec& layer : layers) {
    for (std::size_t tensor = 0; tensor < layer.tensors.size(); ++tensor) {
      const StoredTensorTable& stored = store.tensors()[first + tensor];
      EXPECT_EQ(stored.spec.name, layer.tensors[tensor].name);
      EXPECT_EQ(stored.index, static_cast<int64_t>(tensor)) << stored.spec.name;
    }
    first += layer.tensors.size();
  }
  EXPECT_EQ(first, store.tensors().size());
}

TEST(Store, TilesGoThroughAQueueAndAreVerified) {
  const TemporaryFolder temp(kDiskRoot);
  MakeStore(SmallJob(), temp.path() / "small");
  const Store store = OpenStore(temp.path() / "small");
  const BlockMemory memory(store.tensors()[0].tiles[1].padded_bytes());
  for (const char* faults : {"", "read:flip=12345@0", "read:zero@0", "read:misdirected=4096@0"}) {
    DiskQueue queue(MakeBackend(DiskBackendKind::kAuto, {}, faults));
    MoveBytes(queue, store.TileRequest(0, 1, memory.all()));
    if (std::string(faults).empty()) {
      store.Verify(0, 1, memory.all());
      continue;
    }
    ExpectError(ErrorCode::kCorrupt,
                "weights.bin: tile 1 of tensor \"decoder.embed_tokens.weight\"",
                [&] { store.Verify(0, 1, memory.all()); });
  }
}

TEST(Store, SaysThatTheFileChangedDuringTheRun) {
  const TemporaryFolder temp(kDiskRoot);
  MakeStore(SmallJob(), temp.path() / "small");
  const Store store = OpenStore(temp.path() / "small");
  const BlockMemory memory(store.tensors()[0].tiles[0].padded_bytes());
  std::string bytes = ReadText(temp.path() / "small" / "weights.bin");
  bytes[100] = static_cast<char>(bytes[100] ^ 1);
  WriteText(temp.path() / "small" / "weights.bin", bytes);
  ExpectError(ErrorCode::kCorrupt, "while it was in use",
              [&] { store.ReadTile(0, 0, memory.all()); });
}

TEST(StoreTable, EveryBuiltInShapeSurvivesItsText) {
  for (const std::string& name : BuiltInShapeNames()) {
    SCOPED_TRACE(name);
    const ModelShape shape = *BuiltInShape(name);
    if (shape.num_layers > 48) continue;  // 66b and 175b: seconds of JSON under sanitizers
    StoreTable table = LayOutStore(MakeModel(shape), "key");
    int64_t next = 0;
    for (StoredTensorTable& tensor : table.tensors) {
      for (StoredTile& tile : tensor.tiles) {
        ASSERT_EQ(tile.offset, next);
        tile.hash = BlockHash({}, static_cast<uint64_t>(next));
        next += tile.padded_bytes();
      }
    }
    EXPECT_EQ(table.weights_bytes, next);
    EXPECT_LT(static_cast<double>(next),
              1.001 * static_cast<double>(WeightBytes(MakeModel(shape))) + 1e6);
    const StoreTable read = ParseStoreTable(StoreTableText(table));
    EXPECT_EQ(ShapeText(read.shape), ShapeText(shape));
    for (std::size_t at = 0; at < table.tensors.size(); ++at) {
      ASSERT_EQ(read.tensors[at].tiles, table.tensors[at].tiles);
    }
  }
}

// What a config.json may say, a store's shape may.
TEST(StoreTable, AnEpsilonOfZeroOrOneIsRead) {
  for (const double epsilon : {0.0, 1.0}) {
    ModelShape shape = SmallShape();
    shape.norm_epsilon = epsilon;
    const StoreTable read = ParseStoreTable(StoreTableText(LayOutStore(MakeModel(shape), "key")));
    EXPECT_EQ(read.shape.norm_epsilon, epsilon);
  }
}

TEST(StoreTable, EveryActivationIsRead) {
  for (const Activation activation :
       {Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kGeluTanh,
        Activation::kSilu, Activation::kClampedSwish, Activation::kClampedOffset}) {
    ModelShape shape = SmallShape();
    shape.activation = activation;
    const StoreTable read = ParseStoreTable(StoreTableText(LayOutStore(MakeModel(shape), "key")));
    EXPECT_EQ(read.shape.activation, activation);
  }
}

ModelShape ReadBack(const ModelShape& shape) {
  return ParseStoreTable(StoreTableText(LayOutStore(MakeModel(shape), "key"))).shape;
}

TEST(StoreTable, EveryScalingOfRotaryPositionsIsRead) {
  ModelShape shape = *BuiltInShape("pythia-70m");
  for (const RopeScalingKind kind :
       {RopeScalingKind::kNone, RopeScalingKind::kLinear, RopeScalingKind::kLlama3,
        RopeScalingKind::kYarn, RopeScalingKind::kDynamic, RopeScalingKind::kLong}) {
    RopeScaling scaling;
    scaling.kind = kind;
    scaling.factor = 3.7;
    scaling.original_positions = 99;
    if (kind == RopeScalingKind::kYarn) {
      scaling.fast_turns = 11.5;
      scaling.slow_turns = 1.25;
      scaling.whole_pairs = false;
      scaling.attention_factor = 1.1386294361119891;
    } else if (kind == RopeScalingKind::kLong) {
      scaling.attention_factor = 1.1902380714238083;
      scaling.short_factors.assign(8, 1.1);
      scaling.long_factors.assign(8, 7.3);
    }
    shape.rope.scaling = scaling;
    EXPECT_EQ(ReadBack(shape).rope, shape.rope) << static_cast<int>(kind);
  }
}

TEST(StoreTable, WindowsAndParallelResidualsAreRead) {
  ModelShape shape = *BuiltInShape("phi-4");
  shape.window = 100;
  shape.windowed.assign(40, true);
  const ModelShape read = ReadBack(shape);
  EXPECT_EQ(read.window, 100);
  EXPECT_EQ(read.windowed, shape.windowed);
  EXPECT_FALSE(read.parallel_residual);
  EXPECT_TRUE(ReadBack(*BuiltInShape("pythia-70m")).parallel_residual);
  shape.windowed.push_back(true);
  testing::ExpectError(ErrorCode::kModelInconsistent, "\"windowed\"", [&] { ReadBack(shape); });
}

}  // namespace
}  // namespace spillway::testing
