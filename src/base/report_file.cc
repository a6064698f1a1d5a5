#include "src/base/report_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "spillway/error.h"
#include "src/base/system_error.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

using Inode = std::pair<dev_t, ino_t>;

std::optional<Inode> InodeOf(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  // Terminals and /dev/null hold nothing that could be lost.
  return S_ISCHR(status.st_mode) ? std::nullopt
                                 : std::optional(Inode(status.st_dev, status.st_ino));
}

// Compares names too, since what will be written may not exist yet.
bool SamePlace(const fs::path& one, const fs::path& other) {
  const std::optional<Inode> inode = InodeOf(one);
  if (inode && inode == InodeOf(other)) return true;
  const std::optional<Inode> folder = InodeOf(FolderOf(one));
  return folder && folder == InodeOf(FolderOf(other)) && one.filename() == other.filename();
}

// Whether writing the report touches `file`.
bool Touches(const fs::path& report, const fs::path& file) {
  return SamePlace(report, file) || SamePlace(PartPathOf(report), file);
}

// How files of ours begin, without white space, which other programs write otherwise. A run that
// was killed may have left less of one.
constexpr std::string_view kTraceBeginning = R"({"displayTimeUnit":"ms",)";
constexpr std::string_view kBeginnings[] = {R"({"version":)", R"({"identity":)", kTraceBeginning};

std::string Beginning(const Descriptor& file, const std::string& name) {
  char begin[64];
  std::string text(begin, ReadSome(file, begin, sizeof(begin), name));
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; });
  return text;
}

bool BeginsAsOurs(std::string_view text) {
  return std::ranges::any_of(kBeginnings, [text](std::string_view ours) {
    return text.starts_with(ours) || ours.starts_with(text);
  });
}

// The kind of a file at whose beginning `file` is; nullopt: another program's.
std::optional<ReportKind> KindOfFile(const Descriptor& file, const std::string& name) {
  constexpr std::size_t kMostBytes = std::size_t{64} << 20;
  if (Beginning(file, name).starts_with(kTraceBeginning)) return ReportKind::kTrace;
  SPILLWAY_CHECK(::lseek(file.get(), 0, SEEK_SET) == 0);
  const std::optional<std::string> text = ReadToEnd(file, kMostBytes, name);
  if (!text) return std::nullopt;
  const auto document = nlohmann::json::parse(*text, nullptr, false);
  if (!document.is_object()) return std::nullopt;
  const bool is_ours = document.contains("version") ? document["version"].is_number_integer()
                                                    : document.contains("identity");
  return is_ours ? KindOf(document) : std::nullopt;
}

fs::path StandardOr(const fs::path& path, const char* standard) {
  return path == "-" ? standard : path;
}

// Returns one that is not valid when `path` is no stream.
Descriptor OpenStream(const fs::path& path, const std::string& flag) {
  struct stat status {};
  // /dev/stdout and /dev/stderr may be files; opening those anew would start at their beginning.
  if (path == "/dev/stdout") return Descriptor(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  if (path == "/dev/stderr") return Descriptor(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  if (::stat(path.c_str(), &status) != 0) return {};
  if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) return {};
  Descriptor stream = OpenOrWait(path.c_str(), O_WRONLY | O_NOCTTY);
  if (!stream.valid()) {
    ThrowSystemError(errno, fmt::format("{} {}: cannot be written", flag, Printable(path.string())),
                     ErrorCode::kPath, "give another " + flag);
  }
  return stream;
}

}  // namespace

ReportFile::ReportFile(std::string flag, fs::path path)
    : flag_(std::move(flag)), path_(std::move(path)) {}

ReportFile::ReportFile(ReportKind kind, std::string flag, fs::path path, const OtherFiles& others)
    : ReportFile(std::move(flag), std::move(path)) {
  kind_ = kind;
  OpenPlace(others);
  if (!place_.valid()) return;
  RefuseOtherKind();
  RefuseForeignPart();
  RefuseRun();
}

ReportFile ReportFile::InOwnFolder(std::string flag, fs::path path) {
  ReportFile file(std::move(flag), std::move(path));
  file.in_own_folder_ = true;
  file.OpenPlace({});
  return file;
}

void ReportFile::OpenPlace(const OtherFiles& others) {
  if (path_.empty()) return;
  if (path_ == "-") {
    throw Error(ErrorCode::kPath,
                Named() + ": it has no standard stream; give a file, or /dev/stdout");
  }
  RefuseOthers(others);
  stream_ = OpenStream(path_, flag_);
  if (stream_.valid()) return;
  place_ = PartFile(path_);
  if (!place_.valid() || ::faccessat(place_.folder().get(), ".", W_OK | X_OK, 0) != 0) {
    ThrowSystemError(errno, Named() + ": cannot be written", ErrorCode::kPath,
                     "give a file in a folder that exists");
  }
  CheckPlace();
}

std::string ReportFile::Named() const {
  return fmt::format("{} {}", flag_, Printable(path_.string()));
}

void ReportFile::RefuseOthers(const OtherFiles& others) const {
  if (Touches(path_, StandardOr(others.input, "/dev/stdin"))) {
    throw Error(ErrorCode::kInput, Named() + " is the input file; give another name");
  }
  const fs::path lines = StandardOr(others.output, "/dev/stdout");
  if (Touches(path_, lines) || (others.output != "-" && Touches(path_, PartPathOf(lines)))) {
    throw Error(ErrorCode::kPath, Named() + " is where the output goes; give another name");
  }
  if (others.report.empty()) return;
  if (Touches(path_, others.report) || Touches(path_, PartPathOf(others.report))) {
    throw Error(ErrorCode::kPath, fmt::format("{} is where {} goes; give another name", Named(),
                                              Printable(others.report.string())));
  }
}

void ReportFile::CheckPlace() const {
  const char* what = nullptr;
  if (!place_.has_name()) {
    what = "no file name";
  } else if (const auto status = place_.StatusOf(place_.name())) {
    what = WhyNoFile(*status);
  }
  if (what != nullptr) {
    throw Error(ErrorCode::kPath, fmt::format("{}: is {}; give the path of a file", Named(), what));
  }
}

bool ReportFile::IsThere() const {
  return asked_for() && !stream_.valid() && HoldsSomething(place_.name());
}

// A regular file of that name, and not an empty one.
bool ReportFile::HoldsSomething(const std::string& name) const {
  const auto status = place_.StatusOf(name);
  return status && WhyNoFile(*status) == nullptr && status->st_size > 0;
}

void ReportFile::RefuseOtherKind() const {
  if (!HoldsSomething(place_.name())) return;
  const Descriptor file = place_.Open(place_.name(), O_RDONLY);
  const auto kind = file.valid() ? KindOfFile(file, Named()) : std::nullopt;
  if (kind == kind_) return;
  const std::string what = kind ? fmt::format("a {} of spillway's, and a {} would take its place",
                                              NameOf(*kind), NameOf(kind_))
                                : fmt::format("no {} of spillway's", NameOf(kind_));
  throw Error(ErrorCode::kOutputExists,
              fmt::format("{}: holds {}; give another name", Named(), what));
}

void ReportFile::RefuseForeignPart() const {
  if (!HoldsSomething(place_.part_name())) return;
  const Descriptor file = place_.Open(place_.part_name(), O_RDONLY);
  if (file.valid() && BeginsAsOurs(Beginning(file, Named()))) return;
  throw Error(
      ErrorCode::kOutputExists,
      fmt::format("{}.part: holds no file of spillway's, and would be written; give another "
                  "name",
                  Named()));
}

// What an interrupted run has left beside its output: its .part may still be empty.
void ReportFile::RefuseRun() const {
  for (const char* suffix : {".journal", ".ahead"}) {
    if (!place_.StatusOf(place_.name() + suffix)) continue;
    throw Error(ErrorCode::kOutputExists,
                Named() + ": is the output of an interrupted run; give another name");
  }
}

void ReportFile::RemoveStalePart() const {
  const auto status = place_.StatusOf(place_.part_name());
  if (!status) return;
  if (WhyNoFile(*status) != nullptr) {
    throw Error(
        ErrorCode::kPath,
        fmt::format("{}.part: is no regular file but would be written; remove it", Named()));
  }
  if (!in_own_folder_) RefuseForeignPart();
  place_.Remove(place_.part_name());
}

void ReportFile::Write(std::string_view text) const {
  if (!asked_for()) return;
  const Descriptor part = Create();
  try {
    WriteAll(part, text, Named());
    Commit(part);
  } catch (const Error&) {
    Discard();
    throw;
  }
}

Descriptor ReportFile::Create() const {
  Descriptor part;
  if (stream_.valid()) {
    part = Descriptor(::fcntl(stream_.get(), F_DUPFD_CLOEXEC, 3));
  } else {
    RemoveStalePart();
    part = place_.Create(place_.part_name());
  }
  if (!part.valid()) {
    ThrowSystemError(errno, Named() + ".part: cannot be created", ErrorCode::kPath,
                     "give another " + flag_);
  }
  return part;
}

void ReportFile::Commit(const Descriptor& part) const {
  if (stream_.valid()) return;
  Sync(part, Named());
  if (!place_.Move(ExistingFile::kReplace)) {
    ThrowSystemError(errno, Named() + ": cannot be put in place", ErrorCode::kIo, "check the disk");
  }
}

void ReportFile::Discard() const noexcept {
  if (!stream_.valid()) place_.Remove(place_.part_name());
}

}  // namespace spillway
