#include "src/verbs/shard_outputs.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "spillway/error.h"
#include "src/base/part_file.h"
#include "src/base/part_number.h"

namespace spillway {
namespace {

using Path = std::filesystem::path;

[[noreturn]] void Refuse(const Path& path, const std::string& text) {
  throw Error(ErrorCode::kInput, fmt::format("{}: {}", Printable(path.string(), 120), text));
}

// "out-00007-of-00032.jsonl"
Shard ShardOfName(const Path& path) {
  const std::optional<NumberedName> name = PartNumberOf(path);
  if (name && name->count > 0 && name->number <= name->count) return {name->number, name->count};
  Refuse(path, "is no shard's output, OUT-0000K-of-0000N.jsonl");
}

// The file of another shard beside one; with 0 and N one shard.
Path SiblingOf(const Path& path, const Shard& shard, int64_t index) {
  return NumberedPart(WholeOfPart(path, shard.index, shard.count), index, shard.count);
}

// Names the last shard as it is counted from 1, N of N, unless there is a file of 0 of N.
[[noreturn]] void RefuseMissing(const Path& known, const Shard& shard, int64_t index) {
  const Path first = SiblingOf(known, shard, 0);
  const bool from_zero =
      std::filesystem::exists(first) || std::filesystem::exists(PartPathOf(first));
  if (index == 0 && !from_zero) index = shard.count;
  const Path path = SiblingOf(known, shard, index);
  const bool begun = std::filesystem::exists(PartPathOf(path));
  Refuse(path,
         begun
             ? fmt::format("shard {} of {} has not ended; its command goes on", index, shard.count)
             : fmt::format("shard {} of {} is not among the files given", index, shard.count));
}

// A file of each shard stays open.
void AllowOpenFiles(std::size_t count) {
  constexpr rlim_t kOthers = 64;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count + kOthers) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, count + kOthers);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

constexpr std::string_view kIdHead = R"({"id":"batch_req_)";
constexpr std::size_t kRunDigits = 16;

// The line's number, from its "id"; 0: it has none.
int64_t NumberOf(std::string_view text) {
  if (!text.starts_with(kIdHead)) return 0;
  const std::size_t begin = kIdHead.size() + kRunDigits + 1;
  const std::size_t end = text.find('"', begin);
  int64_t number = 0;
  const bool fits = end != std::string_view::npos && text[begin - 1] == '_' &&
                    TakeDigits(text.substr(begin, end - begin), number);
  return fits && number > 0 ? number : 0;
}

}  // namespace

ShardOutputs::ShardOutputs(const std::vector<Path>& paths) {
  const Shard first = ShardOfName(paths.front());
  files_.resize(static_cast<std::size_t>(first.count));
  for (const Path& path : paths) {
    const Shard shard = ShardOfName(path);
    if (shard.count != first.count) {
      Refuse(path, fmt::format("is of {} shards, and {} of {}", shard.count,
                               Printable(paths.front().string(), 80), first.count));
    }
    File& file = files_[static_cast<std::size_t>(shard.remainder())];
    if (!file.path.empty())
      Refuse(path, fmt::format("is the same shard as {}", Printable(file.path.string(), 120)));
    file.path = path;
  }
  const auto missing =
      std::ranges::find_if(files_, [](const File& file) { return file.path.empty(); });
  if (missing != files_.end()) RefuseMissing(paths.front(), first, missing - files_.begin());
  AllowOpenFiles(files_.size());
  for (File& file : files_) {
    file.stream.open(file.path, std::ios::binary);
    if (!file.stream.is_open() && errno == EMFILE) {
      throw Error(
          ErrorCode::kSystemLimit,
          fmt::format("{} files cannot be open at once; raise the limit (ulimit -n)", count()));
    }
    if (!file.stream.is_open()) Refuse(file.path, "cannot be read; check its name and permissions");
    Advance(file);
  }
}

void ShardOutputs::Advance(File& file) {
  ShardLine line;
  if (!std::getline(file.stream, line.text)) {
    file.next.reset();
    return;
  }
  if (file.stream.eof()) Refuse(file.path, "ends within a line; copy it again");
  line.number = NumberOf(line.text);
  CheckNumber(file, line);
  file.next = std::move(line);
}

// All lines are of one form and one run, each in its shard's file, in ascending order.
void ShardOutputs::CheckNumber(const File& file, const ShardLine& line) {
  const bool scores = line.number == 0;
  const std::string run = scores ? "score" : line.text.substr(kIdHead.size(), kRunDigits);
  if (run_.empty()) {
    run_ = run;
    form_ = scores ? AnswerForm::kScore : AnswerForm::kCompletion;
  }
  if (run != run_) Refuse(file.path, "is not of the same input as the other shards");
  if (scores) return;
  if (&FileOf(line.number) != &file)
    Refuse(file.path, fmt::format("answers line {}, which is another shard's", line.number));
  if (file.next && file.next->number >= line.number)
    Refuse(file.path, fmt::format("answers line {} after line {}", line.number, file.next->number));
}

std::optional<int64_t> ShardOutputs::NextNumber() const {
  std::optional<int64_t> lowest;
  for (const File& file : files_) {
    if (file.next && (!lowest || file.next->number < *lowest)) lowest = file.next->number;
  }
  return lowest;
}

std::string ShardOutputs::Take(int64_t number) {
  File& file = files_[static_cast<std::size_t>(number % count())];
  if (!file.next) Refuse(file.path, fmt::format("has no answer to line {} of the input", number));
  if (file.next->number != 0 && file.next->number != number) {
    Refuse(file.path, fmt::format("answers line {} where line {} of the input is due",
                                  file.next->number, number));
  }
  std::string text = std::move(file.next->text);
  Advance(file);
  return text;
}

void ShardOutputs::RefuseRest() const {
  for (const File& file : files_) {
    if (file.next) Refuse(file.path, "has more answers than the input has lines of its shard");
  }
}

}  // namespace spillway
