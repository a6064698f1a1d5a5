#include "src/report/report_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "spillway/error.h"

namespace spillway {

namespace fs = std::filesystem;

ReportFile::ReportFile(fs::path path) : path_(std::move(path)) {
  if (path_.empty()) return;
  const fs::path folder = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
  std::error_code ignored;
  if (fs::is_directory(path_, ignored) || ::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw Error(ErrorCode::kPath,
                fmt::format("--report {}: cannot be written; give a file in a folder that exists",
                            Printable(path_.string())));
  }
}

void ReportFile::Write(std::string_view text) const {
  if (path_.empty()) return;
  std::error_code ignored;
  const bool replaceable = !fs::exists(path_, ignored) || fs::is_regular_file(path_, ignored);
  const fs::path target = replaceable ? fs::path(path_.string() + ".part") : path_;
  std::ofstream out(target, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  std::error_code failed;
  if (out && replaceable) fs::rename(target, path_, failed);
  if (!out || failed) {
    throw Error(ErrorCode::kIo,
                fmt::format("--report {}: writing failed: {}", Printable(path_.string()),
                            failed ? failed.message() : std::strerror(errno)));
  }
}

}  // namespace spillway
