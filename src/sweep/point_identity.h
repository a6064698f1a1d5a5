// PointIdentities: what makes two runs of a sweep the same point. Thread rule: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "src/base/host.h"
#include "src/store/content_key.h"  // FileHashes
#include "src/sweep/grid.h"

namespace spillway {

inline constexpr std::array<std::string_view, 6> kIdentityKeys = {"verb",  "settings", "files",
                                                                  "model", "program",  "host"};

class PointIdentities {
 public:
  // An object with kIdentityKeys: the verb and settings, hashes of the files that they name, a key
  // of the model's folder, this build of the program, and the host with its profiles, as far as the
  // point depends on them. A file is read again only when its size or time has changed.
  // Throws: Error kInterrupted.
  nlohmann::ordered_json Of(const SweepPoint& point);

 private:
  struct KnownFile {
    std::uintmax_t size = 0;
    std::filesystem::file_time_type time;
    std::string hash;
  };

  nlohmann::ordered_json HashesOfFiles(const SweepPoint& point);
  nlohmann::ordered_json ModelKey(const SweepPoint& point);
  nlohmann::ordered_json HostKey(const SweepPoint& point);
  std::string FileHash(const std::filesystem::path& path);

  std::string processor_ = ProcessorName();
  std::map<std::filesystem::path, KnownFile> files_;
  FileHashes model_files_{FileHashMemory()};
};

}  // namespace spillway
