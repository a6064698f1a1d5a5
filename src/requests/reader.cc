#include "src/requests/reader.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "spillway/error.h"
#include "src/requests/input_form.h"
#include "src/requests/line_source.h"
#include "src/requests/request_parser.h"

namespace spillway {

struct RequestReader::State {
  std::string name;
  LineSource lines;
  RequestParser parser;
  Shard shard;

  std::optional<std::vector<uint32_t>> expected;  // hashes of the wanted lines
  std::size_t num_wanted = 0;                     // so far

  // Counts it where it is wanted.
  bool TakesWanted(const Line& line) {
    if (line.blank || !shard.Has(line.number)) return false;
    const std::size_t at = num_wanted++;
    if (expected && at >= expected->size()) {
      throw Error(ErrorCode::kResume,
                  fmt::format("line {} of {} was not there when the run began; take it away",
                              line.number, Printable(name)));
    }
    if (expected && (*expected)[at] != line.Hash()) {
      throw Error(ErrorCode::kResume,
                  fmt::format("line {} of {} is not what it was when the run began; put it back",
                              line.number, Printable(name)));
    }
    return true;
  }
};

RequestReader::RequestReader(const std::filesystem::path& path, const Tokenizer& tokenizer,
                             const ReaderOptions& options)
    : state_(new State{InputName(path, options),
                       LineSource(path, InputName(path, options), options.max_line_bytes),
                       RequestParser(FormOf(InputName(path, options)), tokenizer, options),
                       options.shard, std::nullopt}) {}

RequestReader::~RequestReader() = default;

void RequestReader::Expect(std::vector<uint32_t> line_hashes) {
  state_->expected = std::move(line_hashes);
}

void RequestReader::CheckForm() {
  RefuseOtherForm(state_->lines.Head(), FormOf(state_->name), state_->name);
}

std::optional<RequestOrError> RequestReader::Next() {
  while (const std::optional<Line> line = state_->lines.Next()) {
    if (state_->TakesWanted(*line)) return state_->parser.Parse(*line).item;
  }
  return std::nullopt;
}

bool RequestReader::Skip(int64_t count) {
  while (count > 0) {
    const std::optional<Line> line = state_->lines.Next();
    if (!line) return false;
    if (state_->TakesWanted(*line)) --count;
  }
  return true;
}

int64_t RequestReader::num_lines_read() const { return state_->lines.num_lines(); }
int64_t RequestReader::num_blank_lines() const { return state_->lines.num_blank_lines(); }
int64_t RequestReader::num_bytes_read() const { return state_->lines.num_bytes(); }
uint64_t RequestReader::input_hash() const { return state_->lines.hash(); }

}  // namespace spillway
