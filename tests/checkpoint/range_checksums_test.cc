#include "src/checkpoint/range_checksums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <string>
#include <thread>

#include "src/checkpoint/crc32.h"

namespace spillway {
namespace {

std::span<const std::byte> View(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string RandomText(std::size_t bytes) {
  std::mt19937 random(1);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

TEST(Crc32Test, IsZips) {
  EXPECT_EQ(Crc32(View("")), 0U);
  EXPECT_EQ(Crc32(View("123456789")), 0xCBF43926U);
  EXPECT_EQ(Crc32(View("The quick brown fox jumps over the lazy dog")), 0x414FA339U);
}

TEST(Crc32Test, PartsGiveTheWhole) {
  const std::string text = RandomText(1000);
  for (std::size_t cut = 0; cut <= text.size(); cut += 37) {
    EXPECT_EQ(Crc32Concatenated(Crc32(View(text).first(cut)), Crc32(View(text).subspan(cut)),
                                static_cast<int64_t>(text.size() - cut)),
              Crc32(View(text)));
  }
}

class RangeChecksumsTest : public ::testing::Test {
 protected:
  // Notes pieces of 10 bytes in an order of its own from several threads; true when one was found
  // damaged.
  bool Damaged(uint32_t crc_xor) {
    RangeChecksums checksums(
        {{"early", 0, 50, 0}, {"range", 100, 1000, Crc32(View(text_)) ^ crc_xor}});
    std::vector<std::size_t> starts(100);
    std::iota(starts.begin(), starts.end(), 0);
    std::ranges::shuffle(starts, std::mt19937(2));
    std::atomic<int> found = 0;
    std::vector<std::thread> threads;
    for (std::size_t worker = 0; worker < 4; ++worker) {
      threads.emplace_back([&, worker] {
        for (std::size_t at = worker; at < starts.size(); at += 4) {
          const std::size_t begin = starts[at] * 10;
          const auto damaged =
              checksums.Note(100 + static_cast<int64_t>(begin), View(text_).subspan(begin, 10));
          if (damaged && damaged->name == "range") ++found;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_LE(found, 1);
    return found == 1;
  }

  std::string text_ = RandomText(1000);
};

TEST_F(RangeChecksumsTest, AnyOrderOfPiecesGivesTheRangesChecksum) {
  EXPECT_FALSE(Damaged(0));
  EXPECT_TRUE(Damaged(1));
}

TEST_F(RangeChecksumsTest, OverlappingPiecesCountOnce) {
  RangeChecksums checksums({{"range", 0, 1000, Crc32(View(text_))}});
  EXPECT_FALSE(checksums.Note(0, View(text_).first(600)));
  EXPECT_FALSE(checksums.Note(500, View(text_).subspan(500)));
  EXPECT_FALSE(checksums.Note(0, View(text_).first(600)));
  EXPECT_FALSE(checksums.Note(600, View(text_).subspan(600)));
  EXPECT_FALSE(checksums.Note(
      900, View("beyond the end of the range, which holds 1000 bytes, and then some. "
                "beyond the end of the range, which holds 1000 bytes, and then some.")));
}

}  // namespace
}  // namespace spillway
