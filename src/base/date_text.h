// Dates as text: 2026-11-27, or 2026-11-27T09:30:00, in local time. Plain functions; any thread.
#pragma once

#include <ctime>
#include <optional>
#include <string>

namespace spillway {

// nullopt: the text is neither of the two, or no such date exists.
std::optional<std::tm> ReadDateText(const std::string& text);

// The shorter form where the time is midnight.
std::string DateText(const std::tm& date);

// Midnight, so many days before today.
std::tm DayBeforeToday(int days);

}  // namespace spillway
