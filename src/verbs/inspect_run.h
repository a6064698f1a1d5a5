// Summary of a run's files, for `inspect`: OUT, OUT.part, OUT.journal, and files of requests.
// Thread rule: any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace spillway {

// Counts of an output's lines, its error codes and lengths; for the files of a run that has not
// ended, how far it is; and what to type next. nullopt: `file` is none of these.
// Throws: Error kIo, kInput; kCorrupt: a damaged journal.
std::optional<std::string> DescribeRunFile(const std::filesystem::path& file);

}  // namespace spillway
