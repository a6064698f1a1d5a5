// ShardOutputs: the finished outputs of all shards of a job, read line by line.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "spillway/shard.h"
#include "src/answers/answer_form.h"

namespace spillway {

// A line of an output.
struct ShardLine {
  std::string text;    // without its newline
  int64_t number = 0;  // line of the input that it answers; 0: scores do not say
};

class ShardOutputs {
 public:
  // `paths`: in any order, named as ResolveShard names them. Throws: Error kInput: one is missing,
  // given twice, or of another number of shards, or has not ended; kSystemLimit: too many to open.
  explicit ShardOutputs(const std::vector<std::filesystem::path>& paths);

  int64_t count() const { return static_cast<int64_t>(files_.size()); }
  // By the first line that there is; completions where there is none.
  AnswerForm form() const { return form_; }
  const std::filesystem::path& PathOf(int64_t line) const { return FileOf(line).path; }

  // The line of the input whose answer is next in its shard's file, the lowest of all shards;
  // nullopt at the end. Requires: completions.
  std::optional<int64_t> NextNumber() const;

  // Takes the next answer of the shard that line `number` of the input belongs to.
  // Throws: Error kInput: there is none, or it is another line's.
  std::string Take(int64_t number);

  // Throws: Error kInput: some shard has answers that were not taken.
  void RefuseRest() const;

 private:
  struct File {
    std::filesystem::path path;
    std::ifstream stream;
    std::optional<ShardLine> next;
  };

  const File& FileOf(int64_t line) const {
    return files_[static_cast<std::size_t>(line % count())];
  }
  void Advance(File& file);
  void CheckNumber(const File& file, const ShardLine& line);

  std::vector<File> files_;  // [remainder of line numbers]
  AnswerForm form_ = AnswerForm::kCompletion;
  std::string run_;  // what ids of all lines have in common
};

}  // namespace spillway
