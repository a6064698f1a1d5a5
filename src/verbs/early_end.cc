#include "src/verbs/early_end.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "src/report/progress_text.h"

namespace spillway {
namespace {

// Places of the finished lines that the disk has.
std::string KeptText(const CompletionWriter& writer) {
  const int64_t num_written = writer.num_written();
  std::string text =
      fmt::format("{} finished line{} in {}", num_written, num_written == 1 ? " is" : "s are",
                  Printable(writer.part_path().string()));
  if (writer.num_kept() > 0)
    text += fmt::format(", {} more in {}", writer.num_kept(),
                        Printable(writer.ahead_path().filename().string()));
  return text;
}

// The flags to leave out of the command that goes on.
std::string_view WithoutOverwrite(const Config& config) {
  if (config.overwrite) return " without --overwrite";
  return config.resume == false ? " without --no-resume" : "";
}

// How long a run that was stopped had to its next answer; such a wait is lost with a stop.
std::string NextAnswerText(const Error& error, std::optional<double> to_answer_s) {
  if (error.code() != ErrorCode::kInterrupted || !to_answer_s) return "";
  return fmt::format("; the next answer was {} away",
                     *to_answer_s < 1.0 ? "less than 1 s" : DurationText(*to_answer_s));
}

std::string GoOnText(const Error& error, const CompletionWriter& writer, const Config& config) {
  const bool stopped = error.code() == ErrorCode::kInterrupted;
  if (writer.part_path().empty())
    return stopped ? "; a run whose --output is a stream does not go on" : "";
  if (writer.num_written() + writer.num_kept() > 0) {
    return fmt::format("; {}; the same command{} goes on after {} of them", KeptText(writer),
                       WithoutOverwrite(config), writer.num_resumable());
  }
  return stopped ? "; no line is finished, the same command begins again" : "";
}

}  // namespace

Error EarlyEnd(const Error& error, const CompletionWriter& writer, const Config& config,
               std::optional<double> to_answer_s) {
  return Error(error.code(),
               error.what() + GoOnText(error, writer, config) + NextAnswerText(error, to_answer_s));
}

}  // namespace spillway
