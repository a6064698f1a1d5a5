#include "src/sweep/point_identity.h"

#include <fmt/format.h>

#include <fstream>
#include <span>
#include <system_error>
#include <vector>

#include "spillway/error.h"
#include "src/base/hash.h"
#include "src/base/isa.h"
#include "src/base/thread_pool.h"
#include "src/config/flags.h"
#include "src/config/version.h"
#include "src/profile/profile_cache.h"
#include "src/store/open_model.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Empty when it cannot be read.
std::string HashOf(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> bytes(1 << 20);
  uint64_t hash = 0;
  while (in) {
    in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    const auto got = std::span(bytes).first(static_cast<std::size_t>(in.gcount()));
    if (!got.empty()) hash = BlockHash(std::as_bytes(got), hash);
  }
  return in.eof() ? HashDigits(hash) : "";
}

}  // namespace

Json PointIdentities::Of(const SweepPoint& point) {
  Json settings = Json::object();
  for (const auto& [flag, value] : point.settings) settings[flag] = value;
  return {{"verb", VerbName(point.verb)},
          {"settings", settings},
          {"files", HashesOfFiles(point)},
          {"model", ModelKey(point)},
          {"program", fmt::format("{} {}", kVersion, FileHash("/proc/self/exe"))},
          {"host", HostKey(point)}};
}

// Null where there is no folder, as for built-in shapes. One that cannot be read has no key that
// was ever kept; the point's run says what is wrong.
Json PointIdentities::ModelKey(const SweepPoint& point) {
  const std::string given = point.Setting("model", "");
  try {
    const fs::path folder = given.empty() ? BundledModel() : fs::path(given);
    std::error_code error;
    if (!fs::is_directory(folder, error)) return nullptr;
    return FolderContentKey(folder, model_files_);
  } catch (const Error& unreadable) {
    if (unreadable.code() == ErrorCode::kInterrupted) throw;  // says nothing of the folder
    return unreadable.what();
  }
}

Json PointIdentities::HashesOfFiles(const SweepPoint& point) {
  Json hashes = Json::object();
  for (const Flag& flag : FlagsOf(point.verb)) {
    const auto setting = point.settings.find(flag.name);
    if (setting == point.settings.end() || !flag.placeholder.starts_with("FILE")) continue;
    hashes[setting->second] = FileHash(setting->second);
  }
  return hashes;
}

// Nothing of a machine that is simulated.
Json PointIdentities::HostKey(const SweepPoint& point) {
  const bool has_machine = point.settings.contains("machine");
  if (point.verb == Verb::kSimulate && has_machine) return nullptr;
  Json profiles = Json::object();
  if (!has_machine) {
    for (const fs::path& file : CachedProfiles())
      profiles[file.filename().string()] = FileHash(file);
  }
  return {{"processor", processor_},
          {"isa", kernels::IsaName(kernels::BestIsa())},
          {"cores", NumPhysicalCores()},
          {"profiles", profiles}};
}

std::string PointIdentities::FileHash(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  const std::uintmax_t size = fs::file_size(path, error);
  const fs::file_time_type time = fs::last_write_time(path, error);
  KnownFile& known = files_[path];
  if (known.hash.empty() || known.size != size || known.time != time)
    known = {size, time, HashOf(path)};
  return known.hash;
}

}  // namespace spillway
