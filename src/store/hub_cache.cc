#include "src/store/hub_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/base/shell_word.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kModels = "models--";
constexpr std::string_view kBetween = "--";

// One part of a Hub name, or a revision.
bool IsPlain(std::string_view part) {
  return !part.empty() && part.size() <= 96 && !part.starts_with('.') &&
         std::ranges::all_of(part, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '-' || c == '_' || c == '.';
         });
}

fs::path FolderIn(const char* variable, const char* below) {
  const char* value = std::getenv(variable);
  return value == nullptr || *value == '\0' ? fs::path() : fs::path(value) / below;
}

// Empty where no variable names a folder.
fs::path CacheFolder() {
  for (const auto& [variable, below] :
       {std::pair{"HF_HUB_CACHE", ""}, std::pair{"HUGGINGFACE_HUB_CACHE", ""},
        std::pair{"HF_HOME", "hub"}, std::pair{"XDG_CACHE_HOME", "huggingface/hub"},
        std::pair{"HOME", ".cache/huggingface/hub"}}) {
    fs::path folder = FolderIn(variable, below);
    if (!folder.empty()) return folder;
  }
  return {};
}

// Text of refs/main; empty where there is none.
std::string MainRevision(const fs::path& folder) {
  std::error_code ignored;
  const fs::path file = folder / "refs" / "main";
  if (!fs::is_regular_file(file, ignored)) return {};
  std::string text;
  std::ifstream(file) >> text;
  return IsPlain(text) ? text : std::string();
}

// The revision of the only snapshot; empty where there is another number of them.
std::string OnlyRevision(const fs::path& folder) {
  std::error_code ignored;
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "snapshots", ignored))
    names.push_back(entry.path().filename().string());
  return names.size() == 1 ? names.front() : std::string();
}

// "models--owner--name" -> "name"; the folder's own name where it is no such.
std::string NameOf(const fs::path& folder) {
  fs::path whole = fs::absolute(folder).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  std::string name = whole.filename().string();
  if (!name.starts_with(kModels)) return name;
  const std::size_t last = name.rfind(kBetween);
  return name.substr(last + kBetween.size());
}

struct HubReference {
  std::string name;      // "owner/name", where it is one
  std::string revision;  // empty: none is told
};

// What people write for a model of the Hub beside its name: the page's address, or a revision
// behind "@", or a slash at the end.
HubReference ReferenceIn(std::string_view given) {
  for (const std::string_view start :
       {"https://", "http://", "www.", "huggingface.co/", "hf.co/", "hf://"})
    if (given.starts_with(start)) given.remove_prefix(start.size());
  given = given.substr(0, given.find_first_of("?#"));
  while (given.ends_with('/')) given.remove_suffix(1);
  HubReference reference;
  for (const std::string_view before : {"@", "/tree/", "/blob/", "/resolve/"}) {
    const std::size_t at = given.find(before);
    if (at == std::string_view::npos) continue;
    const std::string_view revision = given.substr(at + before.size());
    // Behind "@" it may have slashes ("refs/pr/1"); in an address a file's path comes behind it.
    reference.revision = before == "@" ? revision : revision.substr(0, revision.find('/'));
    given = given.substr(0, at);
  }
  reference.name = given;
  return reference;
}

fs::path FolderOf(std::string_view name) {
  std::string folder = std::string(kModels).append(name);
  if (const std::size_t slash = folder.find('/'); slash != std::string::npos)
    folder.replace(slash, 1, kBetween);
  return CacheFolder() / folder;
}

// The snapshot of a commit that the cache has.
std::optional<CachedModel> FindSnapshot(const HubReference& reference) {
  if (CacheFolder().empty() || !IsPlain(reference.revision)) return std::nullopt;
  const fs::path folder = FolderOf(reference.name);
  const fs::path snapshot = folder / "snapshots" / reference.revision;
  std::error_code ignored;
  if (!fs::is_directory(snapshot, ignored)) return std::nullopt;
  return CachedModel{snapshot, NameOf(folder)};
}

bool IsOfMain(const HubReference& reference) {
  return reference.revision.empty() || reference.revision == "main";
}

}  // namespace

std::optional<CachedModel> FindReferenced(std::string_view given) {
  if (std::optional<CachedModel> cached = FindCachedModel(given)) return cached;
  const HubReference reference = ReferenceIn(given);
  if (!IsHubName(reference.name)) return std::nullopt;
  return IsOfMain(reference) ? FindCachedModel(reference.name) : FindSnapshot(reference);
}

CachedModel PlaceOfModel(const std::string& given) {
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(given, ignored)))
    return SnapshotIn(given).value_or(CachedModel{given, ""});
  if (const std::optional<CachedModel> cached = FindReferenced(given)) return *cached;
  const HubReference reference = ReferenceIn(given);
  if (!IsHubName(reference.name)) return {given, ""};
  const bool is_main = IsOfMain(reference);
  throw Error(
      ErrorCode::kModelMissing,
      fmt::format("{}: no such folder, and no such model in the Hugging Face cache; nothing "
                  "is fetched here, so run hf download {}{} first{}",
                  Printable(given, 90), reference.name,
                  is_main ? "" : " --revision " + ShellWord(Printable(reference.revision, 96)),
                  is_main ? "" : ", and give the folder that it prints"));
}

bool IsHubName(std::string_view name) {
  const std::size_t slash = name.find('/');
  return slash != std::string_view::npos && IsPlain(name.substr(0, slash)) &&
         IsPlain(name.substr(slash + 1));
}

std::optional<CachedModel> FindCachedModel(std::string_view name) {
  if (CacheFolder().empty() || !(IsHubName(name) || IsPlain(name))) return std::nullopt;
  return SnapshotIn(FolderOf(name));
}

std::optional<CachedModel> SnapshotIn(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder / "snapshots", ignored) ||
      fs::exists(folder / "config.json", ignored))
    return std::nullopt;
  std::string revision = MainRevision(folder);
  if (revision.empty()) revision = OnlyRevision(folder);
  fs::path snapshot = folder / "snapshots" / revision;
  if (!revision.empty() && fs::is_directory(snapshot, ignored))
    return CachedModel{std::move(snapshot), NameOf(folder)};
  throw Error(ErrorCode::kModelMissing,
              fmt::format("{}: a cached model without the snapshot that its refs/main names; give "
                          "one of the folders in its snapshots",
                          Printable(folder.string(), 120)));
}

}  // namespace spillway
