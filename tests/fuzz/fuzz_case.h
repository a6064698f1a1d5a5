// Parts of the fuzz targets (scripts/fuzz.sh): each gives a parser bytes that nobody vouches for.
// The parser takes them or refuses them by an Error; a crash, a sanitizer's report, another
// exception, a failed check, ten seconds or 2 GB are findings. Thread rule: one thread.
#pragma once

#include <filesystem>
#include <string_view>

namespace spillway::fuzz {

// The target's own: gives `bytes` to the parser. May throw Error, and nothing else.
void Take(std::string_view bytes);

// A folder in memory that lasts as long as the process; scripts/fuzz.sh removes what a crash
// leaves.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Replaces a file of the folder.
  std::filesystem::path Write(std::string_view name, std::string_view bytes) const;
  void Remove(std::string_view name) const;

 private:
  std::filesystem::path path_;
};

// The first of several texts in one input, which NUL bytes divide; cuts it off `bytes`.
std::string_view NextPart(std::string_view& bytes);

}  // namespace spillway::fuzz
