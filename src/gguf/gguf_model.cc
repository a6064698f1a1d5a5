#include "src/gguf/gguf_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/base/hash.h"
#include "src/base/json_text.h"
#include "src/base/part_number.h"
#include "src/base/user_folders.h"
#include "src/gguf/gguf_checkpoint.h"
#include "src/gguf/gguf_config.h"
#include "src/gguf/gguf_file.h"
#include "src/gguf/gguf_tokenizer.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

// Raised when the files of a folder change for the same metadata.
constexpr int kFolderForm = 2;

using Texts = std::map<std::string, std::string>;  // by the file's name

Texts TextsOf(const std::vector<GgufFile>& files) {
  const GgufMetadata& metadata = files.front().metadata;
  Texts texts;
  texts["config.json"] = JsonFileText(GgufConfig(files));
  texts["generation_config.json"] = JsonFileText(GgufGeneration(metadata));
  if (!HasGgufTokenizer(metadata)) return texts;
  texts["tokenizer.json"] = JsonText(GgufTokenizerJson(metadata));
  texts["tokenizer_config.json"] = JsonFileText(GgufTokenizerSettings(metadata));
  return texts;
}

// Key of the folder: equal for files whose heads have the same bytes.
std::string FolderKey(const std::vector<GgufFile>& files) {
  std::string heads;
  for (const GgufFile& file : files) heads += file.file.ReadStart(file.head_bytes);
  return fmt::format("{}-{}", HashDigits(TextHash(heads)), kFolderForm);
}

[[noreturn]] void ThrowPath(const fs::path& folder) {
  throw Error(ErrorCode::kPath,
              fmt::format("{}: the files made of a GGUF file's metadata cannot be written there; "
                          "set XDG_CACHE_HOME to a folder of yours",
                          Printable(folder.string())));
}

void WriteTexts(const fs::path& folder, const Texts& texts) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  for (const auto& [name, text] : texts) {
    std::ofstream file(folder / name, std::ios::binary);
    if (failed || !file.write(text.data(), std::ssize(text)).flush()) ThrowPath(folder);
  }
}

// Gives the folder its name whole; where another process was first, its folder stays.
void MakeFolder(const fs::path& folder, const Texts& texts) {
  const fs::path part = fmt::format("{}.part-{}", folder.string(), getpid());
  std::error_code ignored;
  fs::remove_all(part, ignored);
  WriteTexts(part, texts);
  std::error_code failed;
  fs::rename(part, folder, failed);
  if (!failed) return;
  fs::remove_all(part, ignored);
  if (!fs::exists(folder / "config.json", ignored)) ThrowPath(folder);
}

// Parent of all such folders: in the user's cache, where there is a place for it; else among
// temporary files.
fs::path FoldersPlace() {
  const fs::path cache = UserCacheFolder();
  std::error_code ignored;
  if (!cache.empty() && fs::is_directory(cache.parent_path(), ignored)) {
    MakeCacheFolder(cache);
    return cache / "gguf";
  }
  const fs::path temporary = UserTemporaryFolder();
  MakeIfUserTemporary(temporary);
  return temporary / "gguf";
}

fs::path FolderOfFiles(const std::vector<GgufFile>& files) {
  const fs::path folder = FoldersPlace() / FolderKey(files);
  std::error_code ignored;
  if (!fs::exists(folder / "config.json", ignored)) MakeFolder(folder, TextsOf(files));
  return folder;
}

// Path of the model whose first of so many parts this is.
fs::path WholeOf(const fs::path& first, int64_t count) {
  const std::string own = PartNumber(1, count);
  if (first.stem().string().ends_with(own)) return WholeOfPart(first, 1, count);
  throw Error(ErrorCode::kModelMissing,
              fmt::format("{}: is not called NAME{}.gguf as the first of {} parts is; give --model "
                          "that file",
                          Printable(first.filename().string()), own, count));
}

std::vector<GgufFile> ReadParts(const fs::path& path) {
  constexpr int64_t kMaxParts = 1000;
  std::vector<GgufFile> files;
  files.push_back(ReadGgufFile(path));
  const int64_t count = files.front().metadata.FindCount("split.count").value_or(1);
  if (count > kMaxParts) files.front().metadata.Refuse(fmt::format("\"split.count\" is {}", count));
  if (count > 1 && files.front().metadata.FindCount("split.no").value_or(0) != 0) {
    throw Error(ErrorCode::kModelMissing,
                fmt::format("{}: is one of {} parts; give --model the first of them",
                            Printable(path.filename().string()), count));
  }
  for (int64_t number = 2; number <= count; ++number)
    files.push_back(ReadGgufFile(NumberedPart(WholeOf(path, count), number, count)));
  return files;
}

}  // namespace

GgufModel OpenGgufModel(const fs::path& path) {
  std::vector<GgufFile> files = ReadParts(path);
  GgufModel model;
  model.folder = FolderOfFiles(files);
  const std::size_t count = files.size();
  const fs::path whole = count == 1 ? path : WholeOf(path, static_cast<int64_t>(count));
  model.name = whole.stem().string();
  model.checkpoint = MakeGgufCheckpoint(std::move(files));
  return model;
}

fs::path GgufFolder(const fs::path& path) { return FolderOfFiles(ReadParts(path)); }

}  // namespace spillway
