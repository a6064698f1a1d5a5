// Summary of a file of ours, for `inspect`. Thread rule: any thread.
#pragma once

#include <filesystem>
#include <string>

namespace spillway {

// A machine file, a report, a plan, a trace, a file of requests, or a file of a run. Requires: a
// regular file. Throws: Error kInput: none of them; and what their readers throw.
std::string DescribeFile(const std::filesystem::path& file);

}  // namespace spillway
