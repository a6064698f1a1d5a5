#include "src/requests/line_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>

namespace spillway {
namespace {

using Kind = Arrival::Kind;

// A pipe whose writing end does not wait.
class Pipe {
 public:
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    from_ = Descriptor(ends[0]);
    to_ = Descriptor(ends[1]);
  }

  Descriptor TakeReader() { return std::move(from_); }
  // Number of bytes that were taken.
  ssize_t Write(const std::string& text) const {
    return ::write(to_.get(), text.data(), text.size());
  }
  void Close() { to_ = Descriptor(); }

 private:
  Descriptor from_;
  Descriptor to_;
};

TEST(LineStream, GivesLinesWithTheirNumbers) {
  Pipe pipe;
  LineStream lines(pipe.TakeReader(), "lines", {});
  pipe.Write(
      "\xEF\xBB\xBF"
      "a\r\n\n \nlast");
  pipe.Close();
  for (const auto& [number, text] :
       {std::pair{1, "a"}, std::pair{2, ""}, std::pair{3, " "}, std::pair{4, "last"}}) {
    const Arrival line = lines.Next();
    ASSERT_EQ(line.kind, Kind::kLine);
    EXPECT_EQ(line.number, number);
    EXPECT_EQ(line.text, text);
    EXPECT_EQ(line.AsLine().blank, number == 2 || number == 3);
  }
  EXPECT_EQ(lines.Next().kind, Kind::kEnd);
  EXPECT_EQ(lines.NextWithin(0).kind, Kind::kEnd);
}

TEST(LineStream, TellsOfAPauseAndGoesOn) {
  Pipe pipe;
  LineStream lines(pipe.TakeReader(), "lines", {});
  pipe.Write("half");
  EXPECT_EQ(lines.NextWithin(0.02).kind, Kind::kPause);
  pipe.Write(" a line\n");
  const Arrival line = lines.Next();
  EXPECT_EQ(line.text, "half a line");
  EXPECT_EQ(line.number, 1);
}

TEST(LineStream, PassesOverALineThatIsTooLong) {
  Pipe pipe;
  LineStream lines(pipe.TakeReader(), "lines", {.line_bytes = 8});
  pipe.Write("12345678\r\n123456789\n" + std::string(1000, 'x'));
  pipe.Write("yy\nshort\n" + std::string(500, 'z'));
  pipe.Close();
  EXPECT_EQ(lines.Next().text, "12345678");
  for (const int64_t num_bytes : {9, 1002}) {
    const Arrival line = lines.Next();
    EXPECT_TRUE(line.too_long);
    EXPECT_FALSE(line.AsLine().blank);
    EXPECT_EQ(line.num_bytes, num_bytes);
    EXPECT_EQ(line.text, "");
  }
  EXPECT_EQ(lines.Next().text, "short");
  EXPECT_TRUE(lines.Next().too_long);
  EXPECT_EQ(lines.Next().kind, Kind::kEnd);
}

// Memory is bounded: a writer far ahead is held up, and not for ever.
TEST(LineStream, ReadsAheadAsFarAsItMay) {
  Pipe pipe;
  LineStream lines(pipe.TakeReader(), "lines", {.ahead_bytes = 1 << 20});
  const std::string line(1023, 'a');
  int64_t num_written = 0;
  int num_waits = 0;
  while (num_waits < 20) {
    if (pipe.Write(line + "\n") == 1024) {
      ++num_written;
      num_waits = 0;
    } else {
      ASSERT_EQ(errno, EAGAIN);
      ++num_waits;
      ::usleep(10'000);
    }
    ASSERT_LT(num_written, 4096);
  }
  EXPECT_GT(num_written, 512);
  pipe.Close();
  int64_t num_read = 0;
  while (lines.Next().kind == Kind::kLine) ++num_read;
  EXPECT_EQ(num_read, num_written);
}

}  // namespace
}  // namespace spillway
