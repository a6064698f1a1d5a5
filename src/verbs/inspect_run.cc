#include "src/verbs/inspect_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <string_view>

#include "spillway/error.h"
#include "src/answers/ahead_lines.h"
#include "src/answers/journal.h"
#include "src/answers/output_file.h"
#include "src/base/descriptor.h"
#include "src/base/part_file.h"
#include "src/base/shell_word.h"
#include "src/base/size_text.h"
#include "src/requests/input_file.h"
#include "src/requests/input_form.h"
#include "src/verbs/inspect_row.h"
#include "src/verbs/line_counts.h"

namespace spillway {
namespace {

using Path = std::filesystem::path;

constexpr int64_t kMaxLineBytes = 64 << 20;
constexpr std::size_t kMaxName = 8192;  // a command that is cut is none

std::string ReadHead(const Path& file) {
  constexpr std::size_t kHeadBytes = 4096;
  const Descriptor opened = OpenInput(file, "inspect");
  std::string head(kHeadBytes, '\0');
  head.resize(ReadSome(opened, head.data(), head.size(), file.string()));
  return head;
}

std::optional<JournalContent> JournalOf(const Path& file) {
  constexpr std::size_t kMaxBytes = 1U << 30;
  const Descriptor opened = OpenInput(file, "inspect");
  const std::optional<std::string> text = ReadToEnd(opened, kMaxBytes, file.string());
  return text ? ParseJournal(*text, file.string()) : std::nullopt;
}

// Whether a process holds the lock that writers of OUT.part take.
bool IsBeingWritten(const Path& part) {
  const Descriptor file(::open(part.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return file.valid() && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0;
}

// The file's name as one types it.
std::string NameOf(const Path& file) { return Printable(ShellPath(file), kMaxName); }

// State of the run that writes `output`, and what to type next; nothing where it left no journal.
std::string DescribeUnfinished(const Path& output) {
  const Path journal = JournalPathOf(output);
  const Path part = PartPathOf(output);
  if (!std::filesystem::exists(journal)) return {};
  const std::optional<JournalContent> content = JournalOf(journal);
  const CommitRecord last =
      content && !content->commits.empty() ? content->commits.back() : CommitRecord{};
  std::string text = InspectRow(
      "committed", fmt::format("the first {} lines, {}", last.lines, SizeText(last.bytes)));
  if (!std::filesystem::exists(part)) return text;
  if (IsBeingWritten(part)) return text + InspectRow("next", "wait: a run is writing it now");
  const std::string command = content ? content->command : "";
  return text +
         InspectRow("next", command.empty() ? "give the same command again; it goes on" : command);
}

// OUT of OUT.part, OUT.journal and OUT.ahead; empty for another name.
Path OutputOf(const Path& file) {
  for (const std::string_view end : {".part", ".journal", ".ahead"}) {
    if (file.extension() == end) return Path(file).replace_extension();
  }
  return {};
}

std::string DescribeManifest(const Path& file) {
  const std::optional<JournalContent> content = JournalOf(file);
  if (!content) return InspectRow("journal", "of a run that had not begun");
  std::string text = InspectRow("journal", "of a run, which these decide:");
  for (const auto& [name, value] : content->manifest)
    text += InspectRow("", fmt::format("{}: {}", Printable(name), Printable(value, 200)));
  return text;
}

// After the counts of an output's lines.
std::string NextOfOutput(const Path& file, const LineCounts& counts) {
  if (const Path output = OutputOf(file); !output.empty()) return DescribeUnfinished(output);
  if (std::filesystem::exists(PartPathOf(file)))
    return InspectRow("beside it", "a run that has not ended:") + DescribeUnfinished(file);
  if (counts.errors.empty()) return InspectRow("next", "nothing is left to do");
  return InspectRow("next",
                    fmt::format("nothing is left to do; the error lines: jq -c 'select(.error)' {}",
                                NameOf(file)));
}

// After the counts of a file of requests.
std::string NextOfInput(const Path& file, const LineCounts& counts) {
  const std::string name = NameOf(file);
  // Scores are not planned: plan reads prompts.
  if (counts.num_texts > counts.num_prompts) {
    return InspectRow(
        "next", fmt::format("spillway score --model DIR --input {} --output OUT.jsonl", name));
  }
  std::string text =
      InspectRow("next", fmt::format("spillway plan --model DIR --input {}", name)) +
      InspectRow("",
                 fmt::format("spillway generate --model DIR --input {} --output OUT.jsonl", name));
  if (FormOf(file) == InputForm::kPlainLines)
    text += InspectRow("", fmt::format("spillway score --model DIR --perplexity {}", name));
  return text;
}

}  // namespace

std::optional<std::string> DescribeRunFile(const Path& file) {
  const std::string head = ReadHead(file);
  if (head.empty() ? file.extension() == ".journal" : IsJournal(head))
    return DescribeManifest(file) + DescribeUnfinished(OutputOf(file));
  if (!head.empty() && IsAhead(head)) {
    return InspectRow("ahead", "answers that wait for those of earlier lines") +
           DescribeUnfinished(OutputOf(file));
  }
  const LineCounts counts = CountLines(file, kMaxLineBytes);
  const bool no_lines_yet = counts.num_lines == 0 && IsNamedAsLines(file);
  if (counts.kind == LinesKind::kOther && !no_lines_yet && file.extension() != ".part")
    return std::nullopt;
  if (counts.kind == LinesKind::kTokenCounts) return counts.Text();
  if (counts.kind != LinesKind::kRequests) return counts.Text() + NextOfOutput(file, counts);
  return counts.Text() + NextOfInput(file, counts);
}

}  // namespace spillway
