#include <gtest/gtest.h>

#include <ostream>

#include "spillway/error.h"
#include "src/checkpoint/checkpoint.h"
#include "tests/checkpoint/model_files.h"

namespace spillway {
namespace {

using testing::BadFile;
using testing::Bytes;
using testing::ExpectError;
using testing::ExpectOpenError;
using testing::PickleOf;
using testing::PickleString;
using testing::TensorPickle;
using testing::TorchFiles;
using testing::Zip;
using testing::ZipFault;
using testing::ZipFile;

constexpr auto kFile = "pytorch_model.bin";
constexpr ErrorCode kMalformed = ErrorCode::kModelMalformed;
constexpr ErrorCode kUnsupported = ErrorCode::kModelUnsupported;
constexpr ErrorCode kUnsafe = ErrorCode::kUnsafe;

TEST(TorchZipTest, TensorsAreReadable) {
  const TemporaryFolder folder(MemoryRoot());
  TensorPickle slice;
  slice.name = "slice";
  slice.offset = 2;
  slice.sizes = {1, 2};
  slice.strides = {77, 1};  // of a dimension of size 1: means nothing
  folder.Write(kFile, Zip(TorchFiles(PickleOf({TensorPickle{}, slice}))));
  const auto checkpoint = OpenCheckpoint(folder.path());
  EXPECT_EQ(checkpoint->format(), "torch zip");
  ASSERT_EQ(checkpoint->tensors().size(), 2U);
  EXPECT_EQ(checkpoint->tensors()[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(testing::ReadAll(*checkpoint, "a"), "0123456789ab");
  EXPECT_EQ(testing::ReadAll(*checkpoint, "slice"), "4567");
}

class BadTorchZipTest : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadTorchZipTest, IsRefused) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write(kFile, GetParam().bytes);
  ExpectOpenError(GetParam().code, GetParam().text, folder.path());
}

// An archive with this pickle.
std::string Pickled(const std::string& pickle) { return Zip(TorchFiles(pickle)); }

std::string Tensor(void (*change)(TensorPickle&)) {
  TensorPickle tensor;
  change(tensor);
  return Pickled(PickleOf({tensor}));
}

std::string With(void (*change)(std::vector<ZipFile>&)) {
  std::vector<ZipFile> files = TorchFiles(PickleOf({TensorPickle{}}));
  change(files);
  return Zip(files);
}

std::string Faulty(const ZipFault& fault) {
  return Zip(TorchFiles(PickleOf({TensorPickle{}})), fault);
}

std::string Protocol4Global(const std::string& module, const std::string& name) {
  return "\x80\x04" + PickleString(module) + PickleString(name) + "\x93.";
}

const std::string kCallSystem =
    std::string("\x80\x02") + "cos\nsystem\n" + PickleString("touch /tmp/owned") + "\x85R.";

INSTANTIATE_TEST_SUITE_P(
    P1P2, BadTorchZipTest,
    ::testing::Values(
        BadFile{"System", Pickled(kCallSystem), kUnsafe, "os.system"},
        BadFile{"Eval",
                Pickled("\x80\x02"
                        "cbuiltins\neval\n."),
                kUnsafe, "builtins.eval"},
        BadFile{"Hub", Pickled(Protocol4Global("torch.hub", "load")), kUnsafe, "torch.hub.load"},
        BadFile{"Dotted", Pickled(Protocol4Global("torch", "_utils._rebuild_tensor_v2")), kUnsafe,
                "_utils"},
        BadFile{"Escaped",
                Pickled("\x80\x02"
                        "c\x1b[2J\nx\n."),
                kUnsafe, "\\x1b[2J"},
        BadFile{"Instance", Pickled("\x80\x02(ios\nsystem\n."), kUnsafe, "os.system"},
        BadFile{"Object", Pickled("\x80\x02(ccollections\nOrderedDict\no."), kUnsafe, "instance"},
        BadFile{"NewObject",
                Pickled("\x80\x02"
                        "ccollections\nOrderedDict\n)\x81."),
                kUnsafe, "instance"},
        BadFile{"Extension", Pickled("\x80\x02\x82\x01."), kUnsafe, "extension"},
        BadFile{"ReduceNumber", Pickled("\x80\x02K\x01)R."), kUnsafe, "calls"},
        BadFile{"ReduceStorage",
                Pickled("\x80\x02"
                        "ctorch\nHalfStorage\n)R."),
                kUnsafe, "calls HalfStorage"},
        BadFile{"BuildTuple", Pickled("\x80\x02)}b."), kUnsafe, "state"},
        BadFile{"BareSystem", kCallSystem, kUnsafe, "os.system"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    P3, BadTorchZipTest,
    ::testing::Values(
        BadFile{"SetItemOnTuple", Pickled("\x80\x02)NNs."), kMalformed, "not a dict"},
        BadFile{"SetItemsOnList", Pickled("\x80\x02](NNu."), kMalformed, "not a dict"},
        BadFile{"OddItems", Pickled("\x80\x02}(Nu."), kMalformed, "not a dict"},
        BadFile{"AppendToDict", Pickled("\x80\x02}Na."), kMalformed, "not a list"},
        BadFile{"Underflow", Pickled("\x80\x02R."), kMalformed, "stack is empty"},
        BadFile{"UnderflowAtMark", Pickled("\x80\x02N(0."), kMalformed, "stack is empty"},
        BadFile{"NoMark", Pickled("\x80\x02t."), kMalformed, "mark is missing"},
        BadFile{"Dangling", Pickled("\x80\x02h\x05."), kMalformed, "never remembered"},
        BadFile{"DanglingHole", Pickled("\x80\x02Nq\x05h\x02."), kMalformed, "never remembered"},
        BadFile{"Unknown", Pickled("\x80\x02\xff."), kMalformed, "unknown opcode 0xff"},
        BadFile{"Protocol9", Pickled("\x80\x09N."), kMalformed, "protocol"},
        BadFile{"NoStop", Pickled("\x80\x02N"), kMalformed, "beyond the end"},
        BadFile{"Empty", Pickled(""), kMalformed, "beyond the end"},
        BadFile{"AfterStop", Pickled("\x80\x02N.N"), kMalformed, "after the end"},
        BadFile{"LeftOver", Pickled("\x80\x02NN."), kMalformed, "left over"},
        BadFile{"BadStorage", Pickled("\x80\x02K\x01Q."), kMalformed, "no tuple"},
        BadFile{"NotADict", Pickled("\x80\x02]."), kUnsupported, "state_dict"},
        BadFile{"NoTensors", Pickled("\x80\x02}."), kUnsupported, "state_dict"},
        BadFile{"Duplicate", Pickled(PickleOf({TensorPickle{}, TensorPickle{}})), kMalformed,
                "duplicate tensor"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    P4, BadTorchZipTest,
    ::testing::Values(
        BadFile{"FewElements", Tensor([](TensorPickle& t) { t.storage_elements = 5; }), kMalformed,
                "not 5 elements"},
        BadFile{"ManyElements", Tensor([](TensorPickle& t) { t.storage_elements = 7; }), kMalformed,
                "not 7 elements"},
        BadFile{"NegativeElements", Tensor([](TensorPickle& t) { t.storage_elements = -1; }),
                kMalformed, "storage"},
        BadFile{"Offset", Tensor([](TensorPickle& t) { t.offset = 1; }), kMalformed,
                "beyond its storage"},
        BadFile{"NegativeOffset", Tensor([](TensorPickle& t) { t.offset = -1; }), kMalformed,
                "negative"},
        BadFile{"Size", Tensor([](TensorPickle& t) {
                  t.sizes = {3, 3};
                }),
                kMalformed, "beyond its storage"},
        BadFile{"NegativeSize", Tensor([](TensorPickle& t) {
                  t.sizes = {-2, 3};
                }),
                kMalformed, "impossible"},
        BadFile{"HugeSize", Tensor([](TensorPickle& t) {
                  t.sizes = {2147483647, 2147483647, 2147483647};
                  t.strides = {1, 1, 1};
                }),
                kMalformed, "impossible"},
        BadFile{"Strides", Tensor([](TensorPickle& t) { t.strides = {3}; }), kMalformed,
                "impossible"},
        BadFile{"NegativeStride", Tensor([](TensorPickle& t) {
                  t.strides = {-3, 1};
                }),
                kMalformed, "negative"},
        BadFile{"ExtentOverflow", Tensor([](TensorPickle& t) {
                  t.sizes = {2147483647, 2};
                  t.strides = {2147483647, 2147483647};
                }),
                kMalformed, "beyond its storage"},
        BadFile{"MissingStorage", Tensor([](TensorPickle& t) { t.key = "1"; }), kMalformed,
                "storage is missing"},
        BadFile{"StoragePath", Tensor([](TensorPickle& t) { t.key = "../version"; }), kMalformed,
                "storage is missing"},
        BadFile{"Double", Tensor([](TensorPickle& t) { t.storage_type = "torch\nDoubleStorage"; }),
                kMalformed, "has 12 bytes, not 6 elements"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    P5, BadTorchZipTest,
    ::testing::Values(
        BadFile{"Long4", Pickled("\x80\x02\x8b" + Bytes<uint32_t>(1 << 30) + "."), kMalformed,
                "beyond the end"},
        BadFile{"Text", Pickled("\x80\x02X" + Bytes<uint32_t>(1 << 30) + "."), kMalformed,
                "beyond the end"},
        BadFile{"Text8", Pickled("\x80\x02\x8d" + std::string(8, '\xff') + "."), kMalformed,
                "beyond the end"},
        BadFile{"LongText", Pickled("\x80\x02" + PickleString(std::string(100'000, 'x')) + "."),
                kMalformed, "64 KiB"},
        BadFile{"Frame", Pickled("\x80\x04\x95" + std::string(8, '\xff') + "."), kMalformed,
                "frame"},
        BadFile{"Memo", Pickled("\x80\x02Nr" + std::string(4, '\xff') + "."), kMalformed,
                "remembered"},
        BadFile{"Marks", Pickled("\x80\x02" + std::string(100'000, '(') + "."), kMalformed,
                "nesting"},
        BadFile{"Steps", Pickled("\x80\x02" + std::string(3 << 20, 'N') + "."), kMalformed,
                "more steps"},
        BadFile{"Size", Pickled(std::string(17 << 20, 'N')), kMalformed, "at most 16777216"},
        BadFile{"Dimensions", Tensor([](TensorPickle& t) { t.sizes.assign(100'000, 1); }),
                kMalformed, "sizes"}),
    [](const auto& info) { return info.param.name; });

const std::string kGood = testing::GoodTorchZip();

std::string Zip64Locator(uint64_t offset) {
  const std::string end = kGood.substr(kGood.size() - 22);
  return kGood.substr(0, kGood.size() - 22) + std::string(56, 'x') + "PK\x06\x07" +
         Bytes<uint32_t>(0) + Bytes(offset) + Bytes<uint32_t>(1) + end;
}

INSTANTIATE_TEST_SUITE_P(
    P6P7, BadTorchZipTest,
    ::testing::Values(
        BadFile{"NoDirectory", kGood.substr(0, kGood.size() - 22), ErrorCode::kModelTruncated,
                "cut off"},
        BadFile{"Trailing", kGood + "x", ErrorCode::kModelTruncated, "directory"},
        BadFile{"Prefixed", "PK\x03\x04" + kGood, kMalformed, "not where its end record says"},
        BadFile{"Zip64Overflow", Zip64Locator(~uint64_t{0}), kMalformed, "zip64"},
        BadFile{"Zip64Wrong", Zip64Locator(0), kMalformed, "zip64"},
        BadFile{"Overlap", Faulty({.local_offset_add = 0xFFFFFFF0}), kMalformed, "overlap"},
        BadFile{"BeyondEnd", Faulty({.local_offset_add = 1 << 30}), kMalformed, "beyond its end"},
        BadFile{"LocalName", Faulty({.different_local_name = true}), kMalformed,
                "differs from the directory"},
        BadFile{"LocalSize", Faulty({.local_size_add = 1}), kMalformed,
                "differs from the directory"},
        BadFile{"Crc", Faulty({.crc_xor = 1}), kMalformed, "checksum differs"},
        BadFile{"Encrypted", Faulty({.flags = 1}), kMalformed, "encrypted"},
        BadFile{"Flags", Faulty({.flags = 1 << 13}), kMalformed, "unknown flags"},
        BadFile{"Descriptor", Faulty({.flags = 1 << 3}), kMalformed, "differs from the directory"},
        BadFile{"Deflated", Faulty({.method = 8}), kMalformed, "compressed"},
        BadFile{"TwoOfAName", With([](std::vector<ZipFile>& f) { f.push_back(f.back()); }),
                kMalformed, "two zip entries"},
        BadFile{"NoPickle", With([](std::vector<ZipFile>& f) { f.erase(f.begin()); }), kMalformed,
                "0 data.pkl"},
        BadFile{"TwoPickles", With([](std::vector<ZipFile>& f) {
                  f.push_back({"n/data.pkl", "N."});
                }),
                kMalformed, "2 data.pkl"},
        BadFile{"P7Climbs", With([](std::vector<ZipFile>& f) {
                  f.push_back({"m/../../x", ""});
                }),
                kUnsafe, "outside"},
        BadFile{"P7Absolute", With([](std::vector<ZipFile>& f) {
                  f.push_back({"/etc/passwd", ""});
                }),
                kUnsafe, "outside"},
        BadFile{"P7Backslash", With([](std::vector<ZipFile>& f) {
                  f.push_back({"m\\x", ""});
                }),
                kUnsafe, "outside"}),
    [](const auto& info) { return info.param.name; });

std::string Tar() {
  std::string tar(1024, '\0');
  return tar.replace(257, 5, "ustar");
}

INSTANTIATE_TEST_SUITE_P(
    P8P9, BadTorchZipTest,
    ::testing::Values(BadFile{"Legacy",
                              std::string("\x80\x02\x8a\x0al\xfc\x9c"
                                          "F\xf9 j\xa8P\x19.",
                                          15) +
                                  "\x80\x02M\xe9\x03.",
                              kMalformed, "beyond the end"},
                      BadFile{"Tar", Tar(), kUnsupported, "tar format"},
                      BadFile{"Script", With([](std::vector<ZipFile>& f) {
                                f.push_back({"m/constants.pkl", "N."});
                              }),
                              kUnsupported, "TorchScript"},
                      BadFile{"Code", With([](std::vector<ZipFile>& f) {
                                f.push_back({"m/code/x.py", ""});
                              }),
                              kUnsupported, "TorchScript"},
                      BadFile{"BigEndian", With([](std::vector<ZipFile>& f) { f[1].data = "big"; }),
                              kUnsupported, "big-endian"},
                      BadFile{"Lfs", "version https://git-lfs.github.com/spec/v1\n", kMalformed,
                              "git lfs pull"},
                      BadFile{"Empty", "", kMalformed, "not a PyTorch file"}),
    [](const auto& info) { return info.param.name; });

TEST(TorchZipTest, EveryTruncationIsRefused) {
  for (std::size_t bytes = 0; bytes < kGood.size(); ++bytes) {
    const TemporaryFolder folder(MemoryRoot());
    folder.Write(kFile, kGood.substr(0, bytes));
    ExpectOpenError(bytes < 4 ? kMalformed : ErrorCode::kModelTruncated, "", folder.path());
  }
}

// P6: a flipped bit of a storage is found when the last of its bytes is read, whatever the order.
TEST(TorchZipTest, DamagedStorageIsFoundWhileReading) {
  std::string bytes = kGood;
  bytes[bytes.find("0123456789ab") + 5] ^= 1;
  const TemporaryFolder folder(MemoryRoot());
  folder.Write(kFile, bytes);
  const auto checkpoint = OpenCheckpoint(folder.path());
  std::string half(6, '\0');
  checkpoint->Read(0, 6, std::as_writable_bytes(std::span(half)));
  checkpoint->Read(0, 6, std::as_writable_bytes(std::span(half)));
  ExpectError(kMalformed, "checksum differs",
              [&] { checkpoint->Read(0, 0, std::as_writable_bytes(std::span(half))); });
}

}  // namespace
}  // namespace spillway
