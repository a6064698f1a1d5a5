// Forms of PyTorch's files beside the usual one: views, other types, values that say nothing, files
// without checksums, files from before 1.6.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <memory>

#include "src/checkpoint/element_layout.h"
#include "tests/checkpoint/model_files.h"

namespace spillway {
namespace {

using testing::Bytes;
using testing::ExpectOpenError;
using testing::PickleOf;
using testing::PickleString;
using testing::ReadAll;
using testing::TensorPickle;
using testing::TorchFiles;
using testing::Zip;
using testing::ZipFile;

constexpr auto kFile = "pytorch_model.bin";

class TorchFormsTest : public ::testing::Test {
 protected:
  std::unique_ptr<Checkpoint> Open(const std::string& bytes) {
    folder_.Write(kFile, bytes);
    return OpenCheckpoint(folder_.path());
  }

  // Bytes of a tensor of these sizes and strides over "0123456789ab".
  std::string View(std::vector<int32_t> sizes, std::vector<int32_t> strides, int32_t offset = 0) {
    TensorPickle tensor;
    tensor.sizes = std::move(sizes);
    tensor.strides = std::move(strides);
    tensor.offset = offset;
    return ReadAll(*Open(Zip(TorchFiles(PickleOf({tensor})))), "a");
  }

  TemporaryFolder folder_{MemoryRoot()};
};

TEST_F(TorchFormsTest, ViewsAreReadInTheOrderOfTheirElements) {
  EXPECT_EQ(View({2, 3}, {1, 2}),
            "014589"
            "2367ab");
  EXPECT_EQ(View({3, 2}, {1, 3}),
            "016723"
            "8945ab");
  EXPECT_EQ(View({3}, {2}, 1), "2367ab");
  EXPECT_EQ(View({2, 3}, {0, 2}),
            "014589"
            "014589");
  EXPECT_EQ(View({4}, {0}, 5), "abababab");
  EXPECT_EQ(View({2, 2}, {1, 1}), "01232345");
  EXPECT_EQ(View({1, 2, 1, 3}, {9, 1, 7, 2}),
            "014589"
            "2367ab");
  EXPECT_EQ(View({3, 0}, {1, 5}), "");
}

TEST_F(TorchFormsTest, ViewsAreReadInParts) {
  TensorPickle tensor;
  tensor.strides = {1, 2};
  const auto checkpoint = Open(Zip(TorchFiles(PickleOf({tensor}))));
  std::string part(6, '\0');
  checkpoint->Read(0, 4, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "892367");
}

TEST_F(TorchFormsTest, ViewsOfThreeStridesAreRefusedWhereTheyAreNeeded) {
  TensorPickle tensor;
  tensor.sizes = {2, 1, 2, 2};
  tensor.strides = {1, 1, 1, 2};
  EXPECT_THAT(Open(Zip(TorchFiles(PickleOf({tensor}))))->tensors()[0].refusal,
              ::testing::HasSubstr("save it again with .contiguous()"));
}

TEST_F(TorchFormsTest, AFewBytesDoNotStandForMany) {
  TensorPickle tensor;
  tensor.sizes = {2'000'000'000, 2'000'000'000};
  tensor.strides = {0, 0};
  EXPECT_FALSE(Open(Zip(TorchFiles(PickleOf({tensor}))))->tensors()[0].refusal.empty());
}

// Reads of a matrix by columns are as long as the columns, not one for each element.
TEST(ElementLayoutTest, RowsOfAMatrixByColumnsTakeAReadForEachColumn) {
  constexpr int64_t kRows = 100;
  constexpr int64_t kCols = 7;
  const ElementLayout layout = {
      .element_bytes = 2, .cols = kCols, .row_stride = 1, .col_stride = kRows};
  int num_reads = 0;
  std::vector<std::byte> out(2 * kRows * kCols);
  ReadElements(layout, 0, out, [&](int64_t offset, std::span<std::byte> bytes) {
    ++num_reads;
    for (std::size_t at = 0; at < bytes.size(); at += 2) {
      const auto element = static_cast<uint16_t>((offset + static_cast<int64_t>(at)) / 2);
      std::memcpy(bytes.data() + at, &element, 2);
    }
  });
  EXPECT_EQ(num_reads, kCols);
  for (int64_t at = 0; at < kRows * kCols; ++at) {
    uint16_t element = 0;
    std::memcpy(&element, out.data() + 2 * at, 2);
    EXPECT_EQ(element, at % kCols * kRows + at / kCols);
  }
}

TEST_F(TorchFormsTest, DoublesAreReadAsFloats) {
  TensorPickle tensor;
  tensor.storage_type = "torch\nDoubleStorage";
  tensor.storage_elements = 2;
  tensor.sizes = {2};
  tensor.strides = {1};
  std::vector<ZipFile> files = TorchFiles(PickleOf({tensor}));
  files[2].data = Bytes(std::bit_cast<uint64_t>(1.5)) + Bytes(std::bit_cast<uint64_t>(-3.0));
  const auto checkpoint = Open(Zip(files));
  EXPECT_EQ(checkpoint->tensors()[0].dtype, DType::kF32);
  EXPECT_EQ(ReadAll(*checkpoint, "a"),
            Bytes(std::bit_cast<uint32_t>(1.5F)) + Bytes(std::bit_cast<uint32_t>(-3.0F)));
}

TEST_F(TorchFormsTest, OtherTypesAreRefusedWhereTheyAreNeeded) {
  TensorPickle tensor;
  tensor.storage_type = "torch\nLongStorage";
  tensor.name = "ids";
  const auto checkpoint = Open(Zip(TorchFiles(PickleOf({tensor, TensorPickle{}}))));
  EXPECT_EQ(ReadAll(*checkpoint, "a"), "0123456789ab");
  EXPECT_THAT(checkpoint->tensors()[1].refusal,
              ::testing::HasSubstr("\"ids\" has the element type LongStorage"));
}

TEST_F(TorchFormsTest, AnArchiveMayHaveNoChecksums) {
  std::string bytes = Zip(TorchFiles(PickleOf({TensorPickle{}})));
  const auto clear = [&](const std::string& signature, std::size_t field) {
    for (std::size_t at = 0; (at = bytes.find(signature, at)) != std::string::npos; ++at)
      bytes.replace(at + field, 4, 4, '\0');
  };
  clear("PK\x01\x02", 16);
  clear("PK\x03\x04", 14);
  EXPECT_EQ(ReadAll(*Open(bytes), "a"), "0123456789ab");
}

// One checksum of 0 among others is a checksum.
TEST_F(TorchFormsTest, AChecksumOfZeroAmongOthersCounts) {
  std::string bytes = Zip(TorchFiles(PickleOf({TensorPickle{}})));
  bytes.replace(bytes.find("PK\x01\x02") + 16, 4, 4, '\0');
  bytes.replace(bytes.find("PK\x03\x04") + 14, 4, 4, '\0');
  folder_.Write(kFile, bytes);
  ExpectOpenError(ErrorCode::kModelMalformed, "checksum differs", folder_.path());
}

// A state dict with the tensor "a", and `value` under "x".
std::string WithValue(const std::string& value) {
  std::string pickle = PickleOf({TensorPickle{}});
  return pickle.substr(0, pickle.size() - 2) + PickleString("x") + value + "u.";
}

std::string Called(const std::string& name, const std::string& arguments) {
  return "c" + name + "\n(" + arguments + "tR";
}

const std::string kStorage = "(" + PickleString("storage") + "ctorch\nHalfStorage\n" +
                             PickleString("0") + PickleString("cpu") + "J" + Bytes<int32_t>(6) +
                             "tQ";
const std::string kHooks = "ccollections\nOrderedDict\n)R";
const std::string kViewArguments = kStorage + "K\x02K\x02\x85K\x01\x85";  // "4567"

TEST_F(TorchFormsTest, ValuesThatSayNothingArePassedOver) {
  for (const std::string& value :
       {std::string("ctorch\nfloat16\n"),
        std::string("cbuiltins\nset\n](K\x01K\x02"
                    "e\x85R"),
        Called("__builtin__\nset", "]"), std::string("\x8f(K\x01\x90"),
        "\x8a\x09" + std::string(9, '\x7f'), std::string("G12345678"),
        Called("_codecs\nencode", PickleString("abc") + PickleString("latin1")),
        Called("torch\ndevice", PickleString("cpu")), Called("collections\nCounter", "}"),
        Called("torch._utils\n_rebuild_qtensor",
               kViewArguments + "(ctorch\nper_tensor_affine\nG12345678K\x01t\x89" + kHooks)}) {
    EXPECT_EQ(ReadAll(*Open(Zip(TorchFiles(WithValue(value)))), "a"), "0123456789ab") << value;
  }
}

TEST_F(TorchFormsTest, TensorsWithStateAreTensors) {
  const std::string plain = kViewArguments + "\x89" + kHooks;
  const std::string tensor = Called("torch._utils\n_rebuild_tensor_v2", plain);
  for (const std::string& value :
       {tensor,
        Called("torch._utils\n_rebuild_parameter_with_state", tensor + "\x89" + kHooks + "}"),
        Called("torch._tensor\n_rebuild_from_type_v2",
               "ctorch._utils\n_rebuild_tensor_v2\nctorch\nTensor\n(" + plain + "t}"),
        Called("torch._utils\n_rebuild_tensor_v3", plain + "ctorch\nfloat16\n")}) {
    EXPECT_EQ(ReadAll(*Open(Zip(TorchFiles(WithValue(value)))), "x"), "4567") << value;
  }
  const std::string float8 =
      Called("torch._utils\n_rebuild_tensor_v3", plain + "ctorch\nfloat8_e4m3fn\n");
  EXPECT_THAT(Open(Zip(TorchFiles(WithValue(float8))))->tensors()[1].refusal,
              ::testing::HasSubstr("float8_e4m3fn"));
}

TEST_F(TorchFormsTest, WhatTorchDoesNotAllowStaysUnsafe) {
  for (const std::string& value :
       {Called("builtins\neval", PickleString("1")), Called("builtins\ngetattr", "NN"),
        Called("_codecs\ndecode", PickleString("x")), Called("torch\nload", PickleString("x")),
        Called("torch\nfloat16", ""), Called("torch\nTensor", "K\x01"),
        Called("torch._utils\n_rebuild_device_tensor_from_numpy", "N"),
        Called("torch.storage\n_load_from_bytes", PickleString("x"))}) {
    folder_.Write(kFile, Zip(TorchFiles(WithValue(value))));
    ExpectOpenError(ErrorCode::kUnsafe, "", folder_.path());
  }
  folder_.Write(kFile,
                Zip(TorchFiles(WithValue(Called("torch._tensor\n_rebuild_from_type_v2",
                                                "ccollections\nCounter\nctorch\nTensor\n(t}")))));
  ExpectOpenError(ErrorCode::kModelMalformed, "wrong arguments", folder_.path());
}

const std::string kMagic("\x80\x02\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19.", 15);

struct Legacy {
  std::string version = "\x80\x02M\xE9\x03.";
  std::string machine = "\x80\x02}(" + PickleString("little_endian") + "\x88u.";
  std::string tensors = PickleOf({TensorPickle{}});
  std::string keys = "\x80\x02](" + PickleString("0") + "e.";
  std::string storages = Bytes<int64_t>(6) + "0123456789ab";

  std::string Text() const { return kMagic + version + machine + tensors + keys + storages; }
};

TEST_F(TorchFormsTest, FilesFromBefore16AreRead) {
  const auto checkpoint = Open(Legacy().Text());
  EXPECT_EQ(checkpoint->format(), "torch before 1.6");
  EXPECT_EQ(ReadAll(*checkpoint, "a"), "0123456789ab");
}

TEST_F(TorchFormsTest, StoragesFollowOneAnother) {
  TensorPickle second;
  second.name = "b";
  second.key = "1";
  second.storage_type = "torch\nByteStorage";
  second.storage_elements = 3;
  TensorPickle third;
  third.name = "c";
  third.key = "2";
  Legacy file;
  file.tensors = PickleOf({TensorPickle{}, second, third});
  file.keys = "\x80\x02](" + PickleString("0") + PickleString("1") + PickleString("2") + "e.";
  file.storages += Bytes<int64_t>(3) + "xyz" + Bytes<int64_t>(6) + "ABCDEFGHIJKL";
  EXPECT_EQ(ReadAll(*Open(file.Text()), "c"), "ABCDEFGHIJKL");
}

struct BadLegacy {
  void (*change)(Legacy&);
  ErrorCode code;
  const char* text;
};

TEST_F(TorchFormsTest, BadFilesFromBefore16AreRefused) {
  constexpr ErrorCode kMalformed = ErrorCode::kModelMalformed;
  for (const BadLegacy& bad : {
           BadLegacy{[](Legacy& f) { f.version = "\x80\x02K\x07."; }, kMalformed, "version"},
           BadLegacy{[](Legacy& f) { f.machine = "\x80\x02]."; }, kMalformed, "machine"},
           BadLegacy{[](Legacy& f) { f.machine = "\x80\x02}."; }, ErrorCode::kModelUnsupported,
                     "big-endian"},
           BadLegacy{[](Legacy& f) {
                       f.tensors =
                           "\x80\x02"
                           "cos\nsystem\n)R.";
                     },
                     ErrorCode::kUnsafe, "os.system"},
           BadLegacy{[](Legacy& f) { f.keys = "\x80\x02]."; }, kMalformed, "storage is missing"},
           BadLegacy{[](Legacy& f) { f.keys = "\x80\x02](" + PickleString("7") + "e."; },
                     kMalformed, "storage of no tensor"},
           BadLegacy{[](Legacy& f) {
                       f.keys = "\x80\x02](" + PickleString("0") + PickleString("0") + "e.";
                       f.storages += f.storages;
                     },
                     kMalformed, "not what its tensor says"},
           BadLegacy{[](Legacy& f) { f.storages = Bytes<int64_t>(5) + "0123456789ab"; }, kMalformed,
                     "not what its tensor says"},
           BadLegacy{[](Legacy& f) { f.storages.pop_back(); }, ErrorCode::kModelTruncated,
                     "within the storage \"0\" of 6 elements"},
           BadLegacy{[](Legacy& f) { f.storages.clear(); }, ErrorCode::kModelTruncated, "ends at"},
       }) {
    Legacy file;
    bad.change(file);
    folder_.Write(kFile, file.Text());
    ExpectOpenError(bad.code, bad.text, folder_.path());
  }
}

TEST_F(TorchFormsTest, EveryTruncationOfAFileFromBefore16IsRefused) {
  const std::string good = Legacy().Text();
  for (std::size_t bytes = 1; bytes < good.size(); ++bytes) {
    folder_.Write(kFile, good.substr(0, bytes));
    EXPECT_THROW(OpenCheckpoint(folder_.path()), Error) << bytes;
  }
}

}  // namespace
}  // namespace spillway
