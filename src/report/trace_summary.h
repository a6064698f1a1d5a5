// A Chrome trace in short: how long each lane was busy. Reads the file once and keeps no events, so
// that traces of any size can be told of. Thread rule: any thread.
#pragma once

#include <filesystem>
#include <string>

namespace spillway {

// Tells whether a file begins as the traces that we write do.
bool LooksLikeTrace(const std::filesystem::path& file);

// A line for the whole and one for each lane. Throws: Error kInput: not a trace as --trace writes
// it, or cut short.
std::string DescribeTrace(const std::filesystem::path& file);

}  // namespace spillway
