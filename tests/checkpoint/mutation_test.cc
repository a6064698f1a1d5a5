// Good files with random damage: each is read or refused, and nothing else. Sanitizer builds make
// it a memory test.
#include <gtest/gtest.h>

#include <random>

#include "spillway/error.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/model_config.h"
#include "tests/checkpoint/model_files.h"

namespace spillway {
namespace {

class Mutator {
 public:
  explicit Mutator(std::string good) : good_(std::move(good)) {}

  std::string Next() {
    std::string bytes = good_;
    const int num_changes = 1 + Below(4);
    for (int change = 0; change < num_changes && !bytes.empty(); ++change) Change(bytes);
    return bytes;
  }

 private:
  int Below(std::size_t limit) { return static_cast<int>(random_() % limit); }

  void Change(std::string& bytes) {
    const auto at = static_cast<std::size_t>(Below(bytes.size()));
    switch (Below(7)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << Below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(Below(256));
        break;
      case 2:
        bytes[at] = '\xff';
        break;
      case 3:
        bytes.resize(at);
        break;
      case 4:
        bytes.erase(at, 1 + static_cast<std::size_t>(Below(8)));
        break;
      case 5:
        bytes.insert(at, bytes.substr(static_cast<std::size_t>(Below(bytes.size())), 8));
        break;
      default:
        bytes[at] = "0123456789[]{}(),:\"-.eQRbqt"[Below(27)];
        break;
    }
  }

  std::string good_;
  std::mt19937 random_{20260101};
};

// Opens and reads every tensor of `name` = each mutation. Returns how many were refused.
int CountRefused(const std::string& name, const std::string& good, int num_mutations) {
  const TemporaryFolder folder(MemoryRoot());
  Mutator mutator(good);
  int num_refused = 0;
  for (int at = 0; at < num_mutations; ++at) {
    folder.Write(name, mutator.Next());
    try {
      const auto checkpoint = OpenCheckpoint(folder.path());
      for (const CheckpointTensor& tensor : checkpoint->tensors())
        testing::ReadAll(*checkpoint, tensor.name);
    } catch (const Error& error) {
      EXPECT_LE(ErrorLine(error.code(), error.what()).size(), 300U) << "mutation " << at;
      ++num_refused;
    }
  }
  return num_refused;
}

TEST(MutationTest, SafetensorsAreReadOrRefused) {
  EXPECT_GT(CountRefused("model.safetensors", testing::GoodSafetensors(), 20'000), 10'000);
}

TEST(MutationTest, TorchZipsAreReadOrRefused) {
  EXPECT_GT(CountRefused("pytorch_model.bin", testing::GoodTorchZip(), 20'000), 10'000);
}

// The archive's checksum hides the pickle from damage: here it is renewed.
TEST(MutationTest, PicklesAreReadOrRefused) {
  const TemporaryFolder folder(MemoryRoot());
  Mutator mutator(testing::PickleOf({testing::TensorPickle{}}));
  for (int at = 0; at < 20'000; ++at) {
    folder.Write("pytorch_model.bin", testing::Zip(testing::TorchFiles(mutator.Next())));
    try {
      const auto checkpoint = OpenCheckpoint(folder.path());
      for (const CheckpointTensor& tensor : checkpoint->tensors())
        testing::ReadAll(*checkpoint, tensor.name);
    } catch (const Error&) {
    }
  }
}

TEST(MutationTest, TorchFilesFromBefore16AreReadOrRefused) {
  const std::string good =
      "\x80\x02\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19.\x80\x02M\xE9\x03.\x80\x02}(" +
      testing::PickleString("little_endian") + "\x88u." +
      testing::PickleOf({testing::TensorPickle{}}) + "\x80\x02](" + testing::PickleString("0") +
      "e." + testing::Bytes<int64_t>(6) + "0123456789ab";
  EXPECT_GT(CountRefused("pytorch_model.bin", good, 20'000), 10'000);
}

TEST(MutationTest, NumpyFilesAreReadOrRefused) {
  EXPECT_GT(CountRefused("decoder.embed_tokens.weight", testing::GoodNpy(), 20'000), 10'000);
}

TEST(MutationTest, ConfigsAreReadOrRefused) {
  const TemporaryFolder folder(MemoryRoot());
  Mutator mutator(testing::TinyConfig() + ",\"eos_token_id\":[1,2],\"enable_bias\":true}");
  for (int at = 0; at < 20'000; ++at) {
    folder.Write("config.json", mutator.Next());
    try {
      NumParameters(MakeModel(ReadModelShape(folder.path())));
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace spillway
