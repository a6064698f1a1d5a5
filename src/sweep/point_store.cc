#include "src/sweep/point_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <utility>

#include "spillway/error.h"
#include "src/base/hash.h"
#include "src/base/json_text.h"
#include "src/base/lock_holder.h"
#include "src/base/report_file.h"
#include "src/base/system_error.h"
#include "src/sweep/run_point.h"  // PointCommand

namespace spillway {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kPoints = "points";
constexpr std::string_view kRunning = ".running.json";
constexpr std::uintmax_t kMaxFileBytes = 16 << 20;  // a report has about 5 KB

std::optional<std::string> ReadRegular(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) > kMaxFileBytes || error)
    return std::nullopt;
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return in ? std::optional(text.str()) : std::nullopt;
}

// A document, unless the text is none: cut short, say.
std::optional<Json> ParseObject(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  return json;
}

Json FaultJson(const std::optional<PointFault>& fault) {
  if (!fault) return nullptr;
  return {{"code", fault->code}, {"message", fault->message}, {"exit_status", fault->exit_status}};
}

Json FileJson(const PointResult& result, Json identity) {
  Json json = result.report.is_object() ? result.report : Json{{"version", 1}};
  json["sweep"] = std::move(identity);
  json["sweep"]["command"] = PointCommand(result.point);
  json["sweep"]["wall_s"] = result.wall_s;
  json["sweep"]["error"] = FaultJson(result.fault);
  return json;
}

// The identity that a file states of itself, when it is that of a run that ended well.
std::optional<Json> FinishedIdentity(const Json& json) {
  const auto sweep = json.find("sweep");
  if (sweep == json.end() || !sweep->is_object() || !json.contains("throughput")) return {};
  const auto error = sweep->find("error");
  const auto wall = sweep->find("wall_s");
  if (error == sweep->end() || !error->is_null() || wall == sweep->end() || !wall->is_number())
    return {};
  Json identity = Json::object();
  for (const std::string_view key : kIdentityKeys) {
    if (!sweep->contains(key)) return {};
    identity[std::string(key)] = (*sweep)[std::string(key)];
  }
  return identity;
}

// Letters that any file system takes, at most 60 of them.
std::string FileLabel(const std::string& label) {
  std::string name;
  for (const char c : label.substr(0, 60)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    name += plain || c == '=' || c == '.' || c == '_' ? c : '-';
  }
  return name.empty() ? "point" : name.front() == '.' ? "_" + name : name;
}

void MakeFolder(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    // Another sweep that starts now may make it first: its lock tells.
    if (!fs::create_directories(folder, error) && error) {
      throw Error(ErrorCode::kPath,
                  fmt::format("--output {}: cannot be made: {}; give another folder",
                              Printable(folder.string()), error.message()));
    }
  } else if (const bool empty = fs::is_empty(folder, error); error) {
    throw Error(ErrorCode::kPath, fmt::format("--output {}: cannot be read: {}",
                                              Printable(folder.string()), error.message()));
  } else if (!empty && !fs::is_directory(folder / kPoints, error)) {
    throw Error(ErrorCode::kOutputExists,
                fmt::format("--output {}: holds other files than a sweep's; give a new folder",
                            Printable(folder.string())));
  }
}

Descriptor Lock(const fs::path& folder) {
  const std::string named = "--output " + Printable(folder.string());
  Descriptor lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.valid())
    ThrowSystemError(errno, named + ": cannot be opened", ErrorCode::kPath, "give another folder");
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    throw Error(
        ErrorCode::kRunInUse,
        fmt::format("{}: another sweep{} is at work there; wait for it or give another folder",
                    named, LockHolderText(lock)));
  }
  return lock;
}

}  // namespace

std::string_view StateOf(const PointResult& result) {
  if (!result.fault) return result.point.verb == Verb::kSimulate ? "simulated" : "measured";
  // Statuses of docs/formats.md, "Exit codes and errors": flags, files, models and what does not
  // fit, then what happens to a run.
  const int status = result.fault->exit_status;
  return (status >= 2 && status < 40) || status == 60 ? "refused" : "failed";
}

PointStore::PointStore(fs::path folder) : folder_(std::move(folder)) {
  if (!folder_.has_filename()) folder_ = folder_.parent_path();  // "out/"
  MakeFolder(folder_);
  lock_ = Lock(folder_);
  std::error_code error;
  fs::create_directory(folder_ / kPoints, error);
  if (error) {
    throw Error(ErrorCode::kPath, fmt::format("--output {}: cannot be written to: {}",
                                              Printable(folder_.string()), error.message()));
  }
  fs::remove(PlaceForReport(), error);
  ReadFinished();
}

void PointStore::ReadFinished() {
  std::error_code error;
  const fs::directory_iterator entries(folder_ / kPoints, error);
  if (error) {
    throw Error(ErrorCode::kPath, fmt::format("--output {}: cannot be read: {}",
                                              Printable(folder_.string()), error.message()));
  }
  for (const fs::directory_entry& entry : entries) {
    if (entry.path().extension() != ".json") continue;
    const std::optional<std::string> text = ReadRegular(entry.path());
    std::optional<Json> json = text ? ParseObject(*text) : std::nullopt;
    if (!json) continue;
    const std::optional<Json> identity = FinishedIdentity(*json);
    if (!identity) continue;
    PointResult result;
    result.file = fs::path(kPoints) / entry.path().filename();
    result.wall_s = (*json)["sweep"]["wall_s"].get<double>();
    json->erase("sweep");
    result.report = std::move(*json);
    finished_[JsonText(*identity)] = std::move(result);
  }
}

std::optional<PointResult> PointStore::Find(const SweepPoint& point) const {
  const auto found = finished_.find(JsonText(identities_.Of(point)));
  if (found == finished_.end()) return std::nullopt;
  PointResult result = found->second;
  result.point = point;
  return result;
}

fs::path PointStore::PlaceForReport() const { return folder_ / kPoints / kRunning; }

std::optional<Json> PointStore::TakeReport() const {
  const std::optional<std::string> text = ReadRegular(PlaceForReport());
  return text ? ParseObject(*text) : std::nullopt;
}

PointResult PointStore::Keep(PointResult result, const std::string& label) {
  Json identity = identities_.Of(result.point);
  const std::string hash = HashDigits(TextHash(JsonText(identity)));
  result.file = fs::path(kPoints) / fmt::format("{}-{}.json", FileLabel(label), hash);
  WriteFile(result.file, JsonFileText(FileJson(result, std::move(identity))));
  std::error_code error;
  fs::remove(PlaceForReport(), error);
  return result;
}

void PointStore::WriteFile(const std::string& name, std::string_view text) const {
  ReportFile::InOwnFolder("--output", folder_ / name).Write(text);
}

}  // namespace spillway
