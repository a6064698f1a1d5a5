// TemporaryFolder: a folder of a test's own, removed with it.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

namespace spillway {

// Folder where a test's many small files cost least: in memory where there is such a place.
inline std::filesystem::path MemoryRoot() {
  std::error_code failed;
  const std::filesystem::path root = "/dev/shm";
  return std::filesystem::is_directory(root, failed) ? root
                                                     : std::filesystem::temp_directory_path();
}

class TemporaryFolder {
 public:
  // Throws where the folder cannot be made for ten seconds: others fill a shared disk for a moment.
  explicit TemporaryFolder(
      const std::filesystem::path& root = std::filesystem::temp_directory_path()) {
    const std::string pattern = (root / "spillway-test-XXXXXX").string();
    for (int tries = 10;; --tries) {
      std::string name = pattern;
      if (::mkdtemp(name.data()) != nullptr) {
        path_ = name;
        return;
      }
      if (tries == 0) throw std::system_error(errno, std::generic_category(), pattern);
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

  std::filesystem::path Write(std::string_view name, std::string_view bytes) const {
    std::ofstream file(path_ / name, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    EXPECT_TRUE(file.good()) << name;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

inline std::string FileText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace spillway
