#include "src/base/date_text.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

TEST(DateTextTest, BothFormsAreReadAndWritten) {
  for (const char* text : {"2026-11-27", "2024-02-29", "2026-01-02T03:04:05"}) {
    const auto date = ReadDateText(text);
    ASSERT_TRUE(date) << text;
    EXPECT_EQ(DateText(*date), text);
  }
  EXPECT_EQ(ReadDateText("2026-11-27")->tm_wday, 5);
}

TEST(DateTextTest, OtherTextsAreRefused) {
  for (const char* text : {"", "2026", "2026-13-01", "2026-02-30", "2026-11-27T24:00:00",
                           "2026-11-27 10:00:00", "26-11-27", "2026-11-2x", "2026-00-01"})
    EXPECT_FALSE(ReadDateText(text)) << text;
}

TEST(DateTextTest, DaysBeforeTodayAreMidnights) {
  const std::tm today = DayBeforeToday(0);
  const std::tm yesterday = DayBeforeToday(1);
  EXPECT_EQ(today.tm_hour, 0);
  EXPECT_EQ((today.tm_wday + 6) % 7, yesterday.tm_wday);
}

}  // namespace
}  // namespace spillway
