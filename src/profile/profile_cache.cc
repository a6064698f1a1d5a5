#include "src/profile/profile_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>

#include "spillway/error.h"
#include "src/base/report_file.h"
#include "src/base/terminal.h"
#include "src/base/user_folders.h"
#include "src/formats/machine_file.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFilePrefix = "machine-";

// Raised when kernels become so much faster that rates from before mislead.
constexpr int kKernels = 2;

// "Intel(R) Xeon(R) Processor" -> "intel-r-xeon-r-processor", for a file's name.
std::string Slug(const std::string& name) {
  constexpr std::size_t kMaxBytes = 100;
  std::string slug;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 && byte < 0x80) {
      slug += static_cast<char>(std::tolower(byte));
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  slug.resize(std::min(slug.size(), kMaxBytes));
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  return slug;
}

void WarnOf(const std::string& message) {
  PrintWarning(fmt::format("the cached machine file is not used: {}", Printable(message, 240)));
}

std::optional<Machine> CachedMachine(const ProfileKey& key) {
  const fs::path path = CachedProfilePath(key);
  std::error_code ignored;
  if (path.empty() || !fs::exists(path, ignored)) return std::nullopt;
  try {
    Machine machine = ReadMachine(path);
    // Names that differ in signs alone have one file.
    if (machine.name == key.processor && machine.isa == key.isa &&
        machine.num_threads == key.num_threads)
      return machine;
    WarnOf(fmt::format("{}: is of another machine; run spillway profile", path.string()));
  } catch (const Error& error) {
    WarnOf(error.what());
  }
  return std::nullopt;
}

}  // namespace

ProfileKey MakeProfileKey(const Machine& machine, const fs::path& folder) {
  struct stat status {};
  const bool found = ::stat(folder.c_str(), &status) == 0;
  return {machine.name, machine.isa, machine.num_threads, found ? status.st_dev : 0};
}

fs::path CachedProfilePath(const ProfileKey& key) {
  const fs::path folder = UserCacheFolder();
  if (folder.empty()) return {};
  return folder / fmt::format("{}{}-{}-{}t-disk{:x}-kernels{}.json", kFilePrefix,
                              Slug(key.processor), key.isa, key.num_threads, key.disk_device,
                              kKernels);
}

std::vector<fs::path> CachedProfiles() {
  std::vector<fs::path> profiles;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(UserCacheFolder(), error)) {
    if (entry.path().filename().string().starts_with(kFilePrefix)) profiles.push_back(entry.path());
  }
  std::ranges::sort(profiles);
  return profiles;
}

bool HasQuietProfile(const ProfileKey& key) {
  const std::optional<Machine> machine = CachedMachine(key);
  return machine && machine->disturbed.empty();
}

std::optional<Machine> CachedProfile(const ProfileKey& key) {
  std::optional<Machine> machine = CachedMachine(key);
  if (machine && !machine->disturbed.empty()) {
    PrintWarning(
        fmt::format("this machine's profile was disturbed ({}); run spillway profile again when it "
                    "is quiet",
                    Printable(machine->disturbed, 120)));
  }
  return machine;
}

void CacheProfile(const fs::path& path, const Machine& machine) {
  MakeCacheFolder(path.parent_path());
  ReportFile::InOwnFolder("machine cache", path).Write(MachineJson(machine));
}

}  // namespace spillway
