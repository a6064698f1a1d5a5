#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

#include "spillway/error.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/model_config.h"
#include "tests/checkpoint/model_files.h"
#include "tests/model_util.h"

namespace spillway {
namespace {

using testing::BadFile;
using testing::ExpectError;
using testing::ExpectOpenError;
using testing::GoodNpy;
using testing::Npy;

constexpr auto kEmbedding = "decoder.embed_tokens.weight";

TEST(NumpyTest, AFolderIsACheckpoint) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write(kEmbedding, GoodNpy());
  folder.Write("decoder.layers.0.fc1.bias.npy",
               Npy("{\"shape\": (2,), 'fortran_order': False, 'descr': '<f4'}", "12345678"));
  folder.Write("notes.txt", "not a tensor");
  const auto checkpoint = OpenCheckpoint(folder.path());
  EXPECT_EQ(checkpoint->format(), "numpy folder");
  ASSERT_EQ(checkpoint->tensors().size(), 2U);
  EXPECT_EQ(checkpoint->tensors()[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(checkpoint->tensors()[1].dtype, DType::kF32);
  EXPECT_EQ(testing::ReadAll(*checkpoint, "model.decoder.embed_tokens.weight"), "0123456789ab");
  EXPECT_EQ(testing::ReadAll(*checkpoint, "decoder.layers.0.fc1.bias"), "12345678");
}

TEST(NumpyTest, AFileThatChangesIsNoticed) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write(kEmbedding, GoodNpy());
  const auto checkpoint = OpenCheckpoint(folder.path());
  std::filesystem::remove(folder.path() / kEmbedding);
  folder.Write(kEmbedding, GoodNpy() + "x");
  ExpectError(ErrorCode::kCorrupt, "changed", [&] { testing::ReadAll(*checkpoint, kEmbedding); });
}

class BadNumpyTest : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadNumpyTest, IsRefused) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write(kEmbedding, GetParam().bytes);
  ExpectOpenError(GetParam().code, GetParam().text, folder.path());
}

std::string Dict(std::string_view descriptor, std::string_view order, std::string_view shape) {
  return Npy("{'descr': " + std::string(descriptor) + ", 'fortran_order': " + std::string(order) +
                 ", 'shape': " + std::string(shape) + ", }",
             "0123456789ab");
}

std::string Version(char version) {
  std::string bytes = GoodNpy();
  bytes[6] = version;
  return bytes;
}

constexpr ErrorCode kMalformed = ErrorCode::kModelMalformed;

INSTANTIATE_TEST_SUITE_P(
    P10toP13, BadNumpyTest,
    ::testing::Values(
        BadFile{"P10Object", Dict("'|O'", "False", "(1,)"), ErrorCode::kUnsafe, "Python objects"},
        BadFile{"P11Header",
                std::string("\x93NUMPY\x01\x00\x11\x27", 10) + std::string(10'001, ' '), kMalformed,
                "10001 bytes (at most 10000)"},
        BadFile{"P11Version2", std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12), kMalformed,
                "at most 10000"},
        BadFile{"P12Short", Dict("'<f2'", "False", "(7,)"), ErrorCode::kModelTruncated,
                "needs 14 bytes"},
        BadFile{"P12Bomb", Dict("'<f2'", "False", "(131072, 131072)"), ErrorCode::kModelTruncated,
                "holds 12"},
        BadFile{"P12Long", Dict("'<f2'", "False", "(5,)"), kMalformed, "2 bytes after"},
        BadFile{"P12Overflow", Dict("'<f2'", "False", "(4294967296, 4294967296)"), kMalformed,
                "63 bits"},
        BadFile{"P12Number", Dict("'<f2'", "False", "(99999999999999999999,)"), kMalformed,
                "63 bits"},
        BadFile{"Negative", Dict("'<f2'", "False", "(-1,)"), kMalformed, "dimension"},
        BadFile{"Expression", Dict("'<f2'", "False", "__import__('os')"), kMalformed, "lacks"},
        BadFile{"NoShape", Npy("{'descr': '<f2', 'fortran_order': False}", ""), kMalformed,
                "needs descr"},
        BadFile{"Twice", Npy("{'descr': '<f2', 'descr': '<f2'}", ""), kMalformed, "unexpected key"},
        BadFile{"After", Npy("{'descr': '<f2', 'fortran_order': False, 'shape': ()} x", "01"),
                kMalformed, "after"},
        BadFile{"Empty", "", kMalformed, "not a numpy array"},
        BadFile{"Cut", GoodNpy().substr(0, 9), kMalformed, "ends within"},
        BadFile{"CutHeader", GoodNpy().substr(0, 40), kMalformed, "ends within"},
        BadFile{"Lfs", "version https://git-lfs.github.com/spec/v1\n", kMalformed, "git lfs pull"}),
    [](const auto& info) { return info.param.name; });

// P13: whoever needs the array says what is wrong.
TEST(NumpyTest, OtherFormsAreRefusedWhereTheyAreNeeded) {
  const std::vector<std::pair<std::string, std::string>> forms = {
      {Dict("'<f2'", "True", "(2, 3)"), "Fortran"},
      {Dict("'>f2'", "False", "(2, 3)"), "big-endian"},
      {Dict("[('x', '<f2')]", "False", "(2, 3)"), "structures"},
      {Version(4), "version 4"},
      {Dict("'<i8'", "False", "(1,)"), "<i8"},
      {Dict("'<f8'", "False", "(1,)"), "<f8"}};
  for (const auto& [bytes, text] : forms) {
    const TemporaryFolder folder(MemoryRoot());
    folder.Write(kEmbedding, bytes);
    EXPECT_THAT(OpenCheckpoint(folder.path())->tensors()[0].refusal, ::testing::HasSubstr(text));
  }
}

// macOS puts "._NAME" beside NAME on file systems of others.
TEST(NumpyTest, HiddenFilesAreNotTheModels) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write("lm_head.weight", GoodNpy());
  folder.Write("._lm_head.weight", "\x05\x16\x07");
  folder.Write(".hidden.bias", "x");
  const auto checkpoint = OpenCheckpoint(folder.path());
  ASSERT_EQ(checkpoint->tensors().size(), 1U);
  EXPECT_EQ(checkpoint->tensors()[0].name, "lm_head.weight");
}

TEST(NumpyShapeTest, ComesFromTheFoldersName) {
  const TemporaryFolder parent(MemoryRoot());
  const auto folder = parent.path() / "opt-125m-np";
  std::filesystem::create_directory(folder);
  parent.Write("opt-125m-np/" + std::string(kEmbedding), GoodNpy());
  EXPECT_EQ(ReadModelShape(folder).name, "opt-125m");
  EXPECT_EQ(ReadModelShape(folder.string() + "/").num_layers, 12);
}

// A sparse file stands for each matrix, which tell the built-in shapes apart.
void WriteMatrices(const ModelShape& shape, const TemporaryFolder& folder,
                   const std::string& prefix = "") {
  for (const LayerSpec& layer : LayersOf(shape)) {
    for (const TensorSpec& spec : layer.tensors) {
      if (spec.is_vector()) continue;
      folder.Write(prefix + spec.name,
                   Npy("{'descr': '<f2', 'fortran_order': False, 'shape': (" +
                           std::to_string(spec.rows) + ", " + std::to_string(spec.cols) + ")}",
                       ""));
      const auto path = folder.path() / (prefix + spec.name);
      std::filesystem::resize_file(
          path, std::filesystem::file_size(path) + static_cast<uint64_t>(spec.bytes()));
    }
  }
}

// The folder's name may be that of a shape whose tensors it cannot hold.
TEST(NumpyShapeTest, ANameOfAnotherFamilyIsNone) {
  const TemporaryFolder parent(MemoryRoot());
  std::filesystem::create_directory(parent.path() / "gpt2-np");
  WriteMatrices(*BuiltInShape("opt-125m"), parent, "gpt2-np/");
  EXPECT_EQ(ReadModelShape(parent.path() / "gpt2-np").name, "opt-125m");
}

TEST(NumpyShapeTest, ComesFromTheTensorsShapes) {
  const TemporaryFolder folder(MemoryRoot());
  WriteMatrices(*BuiltInShape("opt-350m"), folder);
  EXPECT_EQ(ReadModelShape(folder.path()).name, "opt-350m");
  std::filesystem::remove(folder.path() / "decoder.layers.23.fc1.weight");
  ExpectError(ErrorCode::kModelMissing, "add the model's config.json",
              [&] { ReadModelShape(folder.path()); });
}

}  // namespace
}  // namespace spillway
