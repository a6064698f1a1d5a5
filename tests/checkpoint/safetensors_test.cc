#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <ctime>
#include <initializer_list>
#include <limits>
#include <ostream>

#include "spillway/error.h"
#include "src/checkpoint/checkpoint.h"
#include "tests/checkpoint/model_files.h"

namespace spillway {
namespace {

using testing::BadFile;
using testing::Bytes;
using testing::ExpectOpenError;
using testing::GoodSafetensors;
using testing::HeaderEntry;
using testing::Safetensors;

constexpr auto kFile = "model.safetensors";

TEST(SafetensorsTest, TensorsAreSortedAndReadable) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write(kFile, GoodSafetensors());
  const auto checkpoint = OpenCheckpoint(folder.path());
  EXPECT_EQ(checkpoint->format(), "safetensors");
  ASSERT_EQ(checkpoint->tensors().size(), 2U);
  EXPECT_EQ(checkpoint->tensors()[0].name, "a");
  EXPECT_EQ(checkpoint->tensors()[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(checkpoint->tensors()[1].dtype, DType::kF32);
  EXPECT_EQ(testing::ReadAll(*checkpoint, "a"), std::string("\0\1\2\3\4\5\6\7\10\11\12\13", 12));
  EXPECT_EQ(testing::ReadAll(*checkpoint, "b"), "\14\15\16\17");
  std::string middle(3, '\0');
  checkpoint->Read(0, 5, std::as_writable_bytes(std::span(middle)));
  EXPECT_EQ(middle, "\5\6\7");
}

TEST(SafetensorsTest, NamesAreFoundWithAndWithoutThePrefix) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write(kFile, Safetensors("{" + HeaderEntry("model.x", "F16", "[1]", "[0,2]") + "," +
                                      HeaderEntry("y", "F16", "[1]", "[2,4]") + "}",
                                  "xxyy"));
  const auto checkpoint = OpenCheckpoint(folder.path());
  EXPECT_EQ(checkpoint->Find("x"), 0);
  EXPECT_EQ(checkpoint->Find("model.x"), 0);
  EXPECT_EQ(checkpoint->Find("model.y"), 1);
  EXPECT_EQ(checkpoint->Find("z"), -1);
}

TEST(SafetensorsTest, ScalarsAndEmptyTensorsAreTensors) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write(kFile, Safetensors("{" + HeaderEntry("s", "F32", "[]", "[0,4]") + "," +
                                      HeaderEntry("e", "F16", "[0,5]", "[4,4]") + "}",
                                  "1234"));
  const auto checkpoint = OpenCheckpoint(folder.path());
  EXPECT_EQ(checkpoint->tensors()[0].bytes, 0);
  EXPECT_EQ(testing::ReadAll(*checkpoint, "s"), "1234");
}

// Fields of the format that we do not know are passed over, as the reference does.
TEST(SafetensorsTest, UnknownFieldsAreIgnored) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write(
      kFile,
      Safetensors(
          R"({"a":{"dtype":"F16","note":{"x":[1,{"y":null}]},"shape":[1],"data_offsets":[0,2]}})",
          "xx"));
  EXPECT_EQ(testing::ReadAll(*OpenCheckpoint(folder.path()), "a"), "xx");
}

std::string OneTensor(std::string_view dtype, std::string_view shape, std::string_view range,
                      std::string_view data = "0123456789ab") {
  return Safetensors("{" + HeaderEntry("t", dtype, shape, range) + "}", data);
}

// M10: whoever needs it says what is wrong.
TEST(SafetensorsTest, OtherTypesAreRefusedWhereTheyAreNeeded) {
  for (const char* type : {"F4", "FLOAT", "F6_E2M3"}) {
    const TemporaryFolder folder(MemoryRoot());
    folder.Write(kFile, OneTensor(type, "[3]", "[0,12]"));
    const auto checkpoint = OpenCheckpoint(folder.path());
    EXPECT_THAT(checkpoint->tensors()[0].refusal,
                ::testing::HasSubstr(fmt::format("type {}, supported are fp16, bf16", type)));
  }
}

TEST(SafetensorsTest, SpaceAndNullMetadataAroundTheHeaderAreTaken) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write(kFile, Safetensors(" \n{\"__metadata__\":null," +
                                      HeaderEntry("t", "F16", "[1]", "[0,2]") + "} ",
                                  "xx"));
  EXPECT_EQ(testing::ReadAll(*OpenCheckpoint(folder.path()), "t"), "xx");
}

TEST(SafetensorsTest, DoublesAreReadAsFloats) {
  const TemporaryFolder folder(MemoryRoot());
  const auto write = [&](std::initializer_list<double> values) {
    std::string data;
    for (const double value : values) data += Bytes(std::bit_cast<uint64_t>(value));
    folder.Write(kFile, OneTensor("F64", "[3]", "[0,24]", data));
    return OpenCheckpoint(folder.path());
  };
  const auto checkpoint = write({1.5, -2.0, std::numeric_limits<double>::infinity()});
  EXPECT_EQ(checkpoint->tensors()[0].dtype, DType::kF32);
  const float expected[] = {1.5F, -2.0F, std::numeric_limits<float>::infinity()};
  EXPECT_EQ(testing::ReadAll(*checkpoint, "t"),
            std::string(reinterpret_cast<const char*>(expected), sizeof(expected)));
  testing::ExpectError(ErrorCode::kModelUnsupported, "\"t\" holds fp64 values beyond fp32's range",
                       [&] {
                         testing::ReadAll(*write({1.0, 1e300, 1.0}), "t");
                       });
}

class BadSafetensorsTest : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadSafetensorsTest, IsRefused) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write(kFile, GetParam().bytes);
  ExpectOpenError(GetParam().code, GetParam().text, folder.path());
}

std::string Deep(std::size_t depth) {
  return R"({"t":{"x":)" + std::string(depth, '[') + std::string(depth, ']') + "}}";
}

constexpr ErrorCode kMalformed = ErrorCode::kModelMalformed;
constexpr ErrorCode kTruncated = ErrorCode::kModelTruncated;

INSTANTIATE_TEST_SUITE_P(
    M1toM5, BadSafetensorsTest,
    ::testing::Values(
        BadFile{"M1Empty", "", kMalformed, "too short"},
        BadFile{"M1Seven", "1234567", kMalformed, "too short"},
        BadFile{"M2Lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n",
                kMalformed, "git-LFS pointer; run git lfs pull"},
        BadFile{"M3Html", "<!DOCTYPE html><html><body>404</body></html>", kMalformed, "web page"},
        BadFile{"M3Xml", "<?xml version=\"1.0\"?><Error/>", kMalformed, "web page"},
        BadFile{"M3Zip", testing::GoodTorchZip(), kMalformed, "zip archive"},
        BadFile{"M4Max", std::string(8, '\xff') + "{}", kMalformed, "18446744073709551615"},
        BadFile{"M4AboveLimit", Bytes<uint64_t>(100'000'001) + "{}", kMalformed,
                "at most 100000000"},
        BadFile{"M4BeyondFile", Bytes<uint64_t>(99'999'999) + "{}", kTruncated,
                "8-100000007 but the file ends at 10"},
        BadFile{"M5Zero", Safetensors("", ""), kMalformed, "does not start with {"},
        BadFile{"M5Array", Safetensors("[]", ""), kMalformed, "does not start with {"},
        BadFile{"M5Space", Safetensors("  ", ""), kMalformed, "does not start with {"},
        BadFile{"M5Nul", Safetensors(std::string("{}\0x", 4), ""), kMalformed, "NUL byte"},
        BadFile{"M5NotJson", Safetensors("{nonsense}", ""), kMalformed, "not JSON"},
        BadFile{"M5Utf8", Safetensors("{\"\xff\":1}", ""), kMalformed, "not JSON"},
        BadFile{"M5Garbage", Safetensors("{}x", ""), kMalformed, "not JSON"},
        BadFile{"M5Twice", Safetensors("{}{}", ""), kMalformed, "not JSON"},
        BadFile{"M5Cut", Safetensors("{\"a\":{\"dtype\":", ""), kMalformed, "not JSON"},
        BadFile{"M5Number", Safetensors("{\"a\":1}", ""), kMalformed, "is a number"},
        BadFile{"M5Null", Safetensors("{\"a\":null}", ""), kMalformed, "is null"},
        BadFile{"M5MetadataNull", Safetensors(R"({"__metadata__":null,"a":null})", ""), kMalformed,
                "is null"},
        BadFile{"M5MetadataTrue", Safetensors(R"({"__metadata__":true})", ""), kMalformed,
                "is a boolean"},
        BadFile{"M5List", Safetensors("{\"a\":[]}", ""), kMalformed, "an array"},
        BadFile{"M5Nested", Safetensors("{\"a\":{\"dtype\":{}}}", ""), kMalformed, "an object"},
        BadFile{"M5Metadata", Safetensors("{\"__metadata__\":{\"a\":1}}", ""), kMalformed,
                "not text"},
        BadFile{"M5MetadataList", Safetensors("{\"__metadata__\":[]}", ""), kMalformed, "an array"},
        BadFile{"M5Missing", Safetensors(R"({"t":{"dtype":"F16","shape":[1]}})", "xx"), kMalformed,
                "needs"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    M6toM12, BadSafetensorsTest,
    ::testing::Values(
        BadFile{"M6Twice",
                Safetensors("{" + HeaderEntry("t", "F16", "[1]", "[0,2]") + "," +
                                HeaderEntry("t", "F16", "[1]", "[2,4]") + "}",
                            "xxyy"),
                kMalformed, "duplicate tensor \"t\""},
        BadFile{
            "M6Field",
            Safetensors(R"({"t":{"dtype":"F16","dtype":"F32","shape":[1],"data_offsets":[0,2]}})",
                        "xx"),
            kMalformed, "occurs twice"},
        BadFile{"M7Hole",
                Safetensors("{" + HeaderEntry("a", "F16", "[1]", "[0,2]") + "," +
                                HeaderEntry("b", "F16", "[1]", "[4,6]") + "}",
                            "012345"),
                kMalformed, "hole"},
        BadFile{"M7Start", OneTensor("F16", "[5]", "[2,12]"), kMalformed, "hole"},
        BadFile{"M7Overlap",
                Safetensors("{" + HeaderEntry("a", "F16", "[2]", "[0,4]") + "," +
                                HeaderEntry("b", "F16", "[2]", "[2,6]") + "}",
                            "012345"),
                kMalformed, "overlaps"},
        BadFile{"M7Backwards", OneTensor("F16", "[6]", "[12,0]"), kMalformed, "begin, end"},
        BadFile{"M7PastEnd", OneTensor("F16", "[8]", "[0,16]"), kTruncated,
                "needs bytes 0-16 but the data ends at 12"},
        BadFile{"M7Trailing", OneTensor("F16", "[5]", "[0,10]"), kMalformed,
                "2 bytes after the last tensor"},
        BadFile{"M7NoTensors", Safetensors("{}", "x"), kMalformed, "1 bytes after"},
        BadFile{"M7Three", OneTensor("F16", "[6]", "[0,12,12]"), kMalformed, "begin, end"},
        BadFile{"M7Negative", OneTensor("F16", "[6]", "[-12,0]"), kMalformed, "negative"},
        BadFile{"M7Fraction", OneTensor("F16", "[6]", "[0,12.0]"), kMalformed, "fractional"},
        BadFile{"M8Product", OneTensor("F16", "[4294967296,4294967296]", "[0,12]"), kMalformed,
                "beyond 63 bits"},
        BadFile{"M8Bytes", OneTensor("F32", "[4611686018427387904]", "[0,12]"), kMalformed,
                "beyond 63 bits"},
        BadFile{"M8Offset", OneTensor("F16", "[6]", "[0,18446744073709551615]"), kMalformed,
                "beyond 63 bits"},
        BadFile{"M8Huge", OneTensor("F16", "[1e400]", "[0,12]"), kMalformed, "JSON"},
        BadFile{"M9Range", OneTensor("F16", "[7]", "[0,12]"), kMalformed,
                "its shape needs 14 bytes"},
        BadFile{"M9Double", OneTensor("F64", "[6]", "[0,12]"), kMalformed,
                "its shape needs 48 bytes"},
        BadFile{"M9Integer", OneTensor("I64", "[6]", "[0,12]"), kMalformed,
                "its shape needs 48 bytes"},
        BadFile{"M12Deep", Safetensors(Deep(100'000), ""), kMalformed, "nested deeper than 64"}),
    [](const auto& info) { return info.param.name; });

// M13: a download cut anywhere is refused; where it is cut within the data, with the tensor and the
// range.
TEST(SafetensorsTest, EveryTruncationIsRefused) {
  const std::string good = GoodSafetensors();
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    const TemporaryFolder folder(MemoryRoot());
    folder.Write(kFile, good.substr(0, bytes));
    ExpectOpenError(bytes < 8 ? kMalformed : kTruncated, "", folder.path());
  }
  const TemporaryFolder folder(MemoryRoot());
  folder.Write(kFile, good.substr(0, good.size() - 1));
  ExpectOpenError(kTruncated, "tensor \"b\" needs bytes 12-16 but the data ends at 15",
                  folder.path());
}

// M11.
TEST(SafetensorsTest, AMillionTensorsOpenInSeconds) {
#ifdef NDEBUG
  constexpr int kNumTensors = 1'000'000;
#else
  // Unoptimised and with sanitizers a tensor takes up to 100 times as long.
  constexpr int kNumTensors = 20'000;
#endif
  std::string header = "{";
  for (int at = 0; at < kNumTensors; ++at) {
    if (at > 0) header += ',';
    header += HeaderEntry("t" + std::to_string(at), "F16", "[0]", "[0,0]");
  }
  const TemporaryFolder folder(MemoryRoot());
  folder.Write(kFile, Safetensors(header + "}", ""));
  const std::clock_t begin = std::clock();  // CPU time: other tests may run beside this one
  EXPECT_EQ(OpenCheckpoint(folder.path())->tensors().size(), std::size_t{kNumTensors});
  EXPECT_LT(std::clock() - begin, 3 * CLOCKS_PER_SEC);
}

// M27: sizes beyond 32 bits, in a sparse file.
TEST(SafetensorsTest, FilesBeyondTwoTebibytesWork) {
  constexpr int64_t kTensorBytes = int64_t{3} << 40;
  const TemporaryFolder folder(MemoryRoot());
  folder.Write(
      kFile,
      Safetensors("{" + HeaderEntry("t", "F16", "[1649267441664]", "[0,3298534883328]") + "}", ""));
  const auto path = folder.path() / kFile;
  std::error_code failed;
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + kTensorBytes, failed);
  if (failed) GTEST_SKIP() << "this filesystem holds no sparse file of 3 TiB";
  const auto checkpoint = OpenCheckpoint(folder.path());
  std::string tail(4, 'x');
  checkpoint->Read(0, kTensorBytes - 4, std::as_writable_bytes(std::span(tail)));
  EXPECT_EQ(tail, std::string(4, '\0'));
}

}  // namespace
}  // namespace spillway
