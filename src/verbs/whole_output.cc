#include "src/verbs/whole_output.h"

#include <filesystem>

#include "spillway/error.h"
#include "src/requests/input_file.h"  // SameFile

namespace spillway {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;

// What a run that has not ended has left there stays, and so does an output; the rest of a run
// that was killed is replaced.
ExistingOutput ExistingOf(const Config& config) {
  const bool is_left = std::filesystem::exists(config.output) ||
                       std::filesystem::exists(JournalPathOf(config.output));
  return is_left && !config.overwrite ? ExistingOutput::kRefuse : ExistingOutput::kReplace;
}

// --output, which may not be the input.
const std::filesystem::path& OutputOf(const Config& config) {
  if (!SameFile(config.input, config.output)) return config.output;
  throw Error(ErrorCode::kInput, "--output is the input file; give another name");
}

}  // namespace

WholeOutput::WholeOutput(const Config& config) : file_(OutputOf(config), ExistingOf(config)) {}

WholeOutput::~WholeOutput() {
  std::error_code ignored;
  if (!finished_ && !file_.part_path().empty()) std::filesystem::remove(file_.part_path(), ignored);
}

void WholeOutput::Add(const std::string& line) {
  buffer_ += line;
  buffer_ += '\n';
  if (buffer_.size() >= kBufferBytes) Flush();
}

void WholeOutput::Finish() {
  Flush();
  file_.Finish();
  finished_ = true;
}

void WholeOutput::Flush() {
  if (!buffer_.empty()) file_.Write(buffer_);
  buffer_.clear();
}

}  // namespace spillway
