// PartNumber: names of files that are numbered parts of one, NAME-00007-of-00032.EXT. Pure
// functions; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

// Reads a number that is digits and nothing else. False: it is not, or too large.
bool TakeDigits(std::string_view text, int64_t& value);

// "-00007-of-00032"
std::string PartNumber(int64_t number, int64_t count);

// Path of a part, beside the whole's.
std::filesystem::path NumberedPart(const std::filesystem::path& whole, int64_t number,
                                   int64_t count);

struct NumberedName {
  int64_t number = 0;
  int64_t count = 0;
};

// What a part's name says; nullopt: it ends in no such numbers. They may be any of five digits.
std::optional<NumberedName> PartNumberOf(const std::filesystem::path& part);

// Path of the whole whose part this is. Requires: its name, less the extension, ends in
// PartNumber(number, count).
std::filesystem::path WholeOfPart(const std::filesystem::path& part, int64_t number, int64_t count);

}  // namespace spillway
