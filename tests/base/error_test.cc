#include "spillway/error.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

TEST(ErrorTest, ExitStatusesAreTheContracts) {
  EXPECT_EQ(ExitStatus(ErrorCode::kInternal), 1);
  EXPECT_EQ(ExitStatus(ErrorCode::kFlag), 2);
  EXPECT_EQ(ExitStatus(ErrorCode::kModelTruncated), 10);
  EXPECT_EQ(ExitStatus(ErrorCode::kUnsafe), 13);
  EXPECT_EQ(ExitStatus(ErrorCode::kOutputExists), 52);
  EXPECT_EQ(ExitStatus(ErrorCode::kInterrupted), 75);
  EXPECT_EQ(ErrorName(ErrorCode::kInterrupted), "E-INTERRUPTED");
}

TEST(ErrorTest, LineIsOneLineOfAtMost300Bytes) {
  const std::string line = ErrorLine(ErrorCode::kInput, std::string(1000, 'x') + "\n");
  EXPECT_EQ(line.size(), 300U);
  EXPECT_EQ(line.substr(0, 26), "spillway: error[E-INPUT]: ");
  EXPECT_EQ(line.substr(297), "...");
}

TEST(ErrorTest, PrintableEscapesWhatATerminalWouldObey) {
  EXPECT_EQ(Printable("a\x1b[31m\nb"), "a\\x1b[31m\\nb");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "1m"),
            "\\xc2\\x9b1m");
  EXPECT_EQ(Printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(Printable("h\xc3\xa9"), "h\xc3\xa9");
  EXPECT_EQ(Printable("\xe2\x80\xae\xe2\x81\xa6"), "\\xe2\\x80\\xae\\xe2\\x81\\xa6");
  EXPECT_EQ(Printable("\xe2\x80\x93\xd8\xa7"), "\xe2\x80\x93\xd8\xa7");
}

TEST(ErrorTest, PrintableCutsBetweenCharacters) {
  EXPECT_EQ(Printable("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 8), "\xc3\xa9\xc3\xa9...");
  EXPECT_EQ(Printable("12345678", 8), "12345678");
}

}  // namespace
}  // namespace spillway
