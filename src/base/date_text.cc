#include "src/base/date_text.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace spillway {
namespace {

// The digits of `form`, where it has a 0, as numbers of as many digits; other characters stand for
// themselves.
bool ReadParts(const std::string& text, std::string_view form, std::array<int, 6>& parts) {
  if (text.size() != form.size()) return false;
  std::size_t part = 0;
  for (std::size_t at = 0; at < form.size(); ++at) {
    if (form[at] != '0') {
      if (text[at] != form[at]) return false;
      ++part;
      continue;
    }
    if (text[at] < '0' || text[at] > '9') return false;
    parts[part] = parts[part] * 10 + (text[at] - '0');
  }
  return true;
}

}  // namespace

std::optional<std::tm> ReadDateText(const std::string& text) {
  std::array<int, 6> parts = {};
  if (!ReadParts(text, "0000-00-00", parts)) {
    parts = {};
    if (!ReadParts(text, "0000-00-00T00:00:00", parts)) return std::nullopt;
  }
  std::tm date = {};
  date.tm_year = parts[0] - 1900;
  date.tm_mon = parts[1] - 1;
  date.tm_mday = parts[2];
  date.tm_hour = parts[3];
  date.tm_min = parts[4];
  date.tm_sec = parts[5];
  date.tm_isdst = -1;
  std::tm settled = date;
  // Fills in the day of the week, and moves a day that no month has.
  const bool exists = std::mktime(&settled) != -1 && settled.tm_mday == date.tm_mday &&
                      settled.tm_mon == date.tm_mon && parts[3] < 24 && parts[4] < 60 &&
                      parts[5] < 60;
  return exists ? std::optional(settled) : std::nullopt;
}

std::string DateText(const std::tm& date) {
  const std::string day =
      fmt::format("{:04}-{:02}-{:02}", date.tm_year + 1900, date.tm_mon + 1, date.tm_mday);
  if (date.tm_hour == 0 && date.tm_min == 0 && date.tm_sec == 0) return day;
  return fmt::format("{}T{:02}:{:02}:{:02}", day, date.tm_hour, date.tm_min, date.tm_sec);
}

std::tm DayBeforeToday(int days) {
  const std::time_t now = std::time(nullptr);
  std::tm date = {};
  ::localtime_r(&now, &date);
  date.tm_mday -= days;
  date.tm_hour = date.tm_min = date.tm_sec = 0;
  date.tm_isdst = -1;
  std::mktime(&date);
  return date;
}

}  // namespace spillway
