#include "src/answers/journal.h"

#include <fmt/format.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "spillway/error.h"
#include "src/answers/framed_line.h"
#include "src/base/hash.h"
#include "src/base/json_text.h"
#include "src/base/system_error.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr int64_t kVersion = 1;
[[noreturn]] void ThrowCorrupt(const std::string& name, std::size_t line) {
  throw Error(ErrorCode::kCorrupt,
              fmt::format("{}: line {} is damaged but later ones are not; give --overwrite to "
                          "start again",
                          Printable(name), line));
}

uint64_t ParseDigits(const std::string& digits) {
  std::size_t used = 0;
  const uint64_t value = std::stoull(digits, &used, 16);
  if (used != HashDigits(value).size()) throw std::out_of_range("digits");
  return value;
}

void TakeManifest(const json& object, JournalContent& content) {
  if (object.at("journal").get<int64_t>() != kVersion) throw std::out_of_range("version");
  content.replaces = object.at("replaces").get<bool>();
  content.manifest = object.at("manifest").get<RunManifest>();
  content.command = object.value("typed", "");  // journals of 0.1.0 have none
}

CommitRecord ParseCommit(const json& object, const JournalContent& before) {
  const CommitRecord commit = {object.at("lines").get<int64_t>(), object.at("bytes").get<int64_t>(),
                               ParseDigits(object.at("hash").get<std::string>())};
  const CommitRecord last = before.commits.empty() ? CommitRecord{} : before.commits.back();
  if (commit.lines <= last.lines || commit.bytes <= last.bytes) throw std::out_of_range("order");
  return commit;
}

}  // namespace

std::optional<JournalContent> ParseJournal(std::string_view text, const std::string& name) {
  JournalContent content;
  std::size_t number = 0;
  std::size_t damaged = 0;  // number of the first damaged line, 0: none
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = text.find('\n', begin);
    const std::optional<std::string_view> framed =
        end == std::string_view::npos ? std::nullopt : FramedText(text.substr(begin, end - begin));
    begin = end == std::string_view::npos ? text.size() : end + 1;
    if (!framed) {
      if (damaged == 0) damaged = number + 1;
      continue;
    }
    if (damaged != 0) ThrowCorrupt(name, damaged);
    try {
      const json object = json::parse(*framed);
      if (number == 0) {
        TakeManifest(object, content);
      } else {
        content.commits.push_back(ParseCommit(object, content));
      }
    } catch (const std::exception&) {
      throw Error(ErrorCode::kCorrupt,
                  fmt::format("{}: line {} is no record of this version; give --overwrite to start "
                              "again",
                              Printable(name), number + 1));
    }
    content.num_bytes = static_cast<int64_t>(begin);
  }
  if (content.num_bytes == 0) return std::nullopt;
  return content;
}

bool IsJournal(std::string_view text) { return BeginsFramed(text, "{\"journal\":"); }

Journal Journal::Begin(Descriptor file, std::string name, const JournalContent& content) {
  Journal journal(std::move(file), std::move(name));
  journal.WriteLine(JsonText(json{{"journal", kVersion},
                                  {"replaces", content.replaces},
                                  {"manifest", json(content.manifest)},
                                  {"typed", content.command}}));
  return journal;
}

Journal::Journal(Descriptor file, std::string name, const JournalContent& content)
    : file_(std::move(file)), name_(std::move(name)) {
  if (::ftruncate(file_.get(), content.num_bytes) != 0 ||
      ::lseek(file_.get(), content.num_bytes, SEEK_SET) < 0) {
    ThrowSystemError(errno, fmt::format("{}: cannot be cut", Printable(name_)), ErrorCode::kIo,
                     "see the system's log");
  }
}

void Journal::Append(const CommitRecord& commit) {
  WriteLine(JsonText(
      json{{"lines", commit.lines}, {"bytes", commit.bytes}, {"hash", HashDigits(commit.hash)}}));
}

void Journal::WriteLine(const std::string& json) {
  WriteAll(file_, FramedLine(json), name_);
  Sync(file_, name_);
}

}  // namespace spillway
