// The journal's text: what is whole, what is torn, what is damaged; and a .part that goes on.
#include "src/answers/journal.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/xattr.h>

#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "src/answers/ahead_lines.h"
#include "tests/answers/writer_values.h"
#include "tests/temporary_folder.h"
#include "tests/trace_case.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

const RunManifest kManifest = {{"input", "aa"}, {"model", "bb"}};

void WriteFile(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

WriterOptions Resuming() { return TestWriterOptions(ExistingOutput::kResume); }

// A run that is killed after `num_lines` committed lines and one that is not; `path`.part stays.
void RunUntilKilled(const fs::path& path, int64_t num_lines,
                    ExistingOutput existing = ExistingOutput::kRefuse) {
  OutputFile file(path, existing);
  file.Begin(kManifest);
  for (int64_t line = 1; line <= num_lines; ++line) {
    file.Write("line " + std::to_string(line) + "\n");
    file.Commit(line);
  }
  file.Write("not committ");
  file.Keep();
}

struct Resumed {
  CommitRecord last;
  std::string lines;
};

Resumed Resume(const fs::path& path, const RunManifest& manifest = kManifest) {
  OutputFile file(path, ExistingOutput::kResume);
  Resumed resumed;
  resumed.last =
      file.Begin(manifest, [&](std::string_view line) { resumed.lines += std::string(line); });
  return resumed;
}

ErrorCode ResumeFails(const fs::path& path, std::string* message,
                      const RunManifest& manifest = kManifest) {
  return CodeOf([&] { Resume(path, manifest); }, message);
}

TEST(RunManifest, NamesWhatDiffers) {
  EXPECT_THAT(
      DifferingKeys({{"a", "1"}, {"b", "2"}, {"c", "3"}}, {{"b", "2"}, {"c", "4"}, {"d", ""}}),
      ElementsAre("a", "c", "d"));
  EXPECT_THAT(DifferingKeys(kManifest, kManifest), ElementsAre());
}

TEST(RunManifest, SaysWhatDiffersWhereThatIsShort) {
  constexpr std::size_t kRoom = 100;
  const RunManifest then = {{"bits", "16"},
                            {"flags", R"({"top_k":0,"seed":0,"stop":["a"]})"},
                            {"gone", "x"},
                            {"long", std::string(61, 'a')},
                            {"model", "0123456789abcdef"}};
  const RunManifest now = {{"bits", "8"},
                           {"flags", R"({"top_k":0,"seed":1,"stop":["a"]})"},
                           {"long", "b"},
                           {"model", "fedcba9876543210"}};
  const std::string values =
      R"(bits (16, now 8), flags ({"seed":0}, now {"seed":1}), gone (x, now none), )"
      "long, model";
  EXPECT_EQ(DifferenceText(then, now, kRoom), values);
  EXPECT_EQ(DifferenceText(then, now, values.size()), values);
  EXPECT_EQ(DifferenceText(then, now, values.size() - 1),
            R"(bits (16, now 8), flags ({"seed":0}, now {"seed":1}), gone, long, model)");
  EXPECT_EQ(DifferenceText(then, now, 0), "bits, flags, gone, long, model");
  EXPECT_EQ(DifferenceText(then, then, kRoom), "");
}

TEST(Journal, WhatIsCommittedIsThereAgain) {
  const TemporaryFolder folder;
  const fs::path path = folder / "out";
  RunUntilKilled(path, 3);
  const Resumed resumed = Resume(path);
  EXPECT_EQ(resumed.last.lines, 3);
  EXPECT_EQ(resumed.lines, "line 1\nline 2\nline 3\n");
  EXPECT_EQ(FileText(folder / "out.part"), resumed.lines);
}

TEST(Journal, AResumedRunGoesOnAndEnds) {
  const TemporaryFolder folder;
  const fs::path path = folder / "out";
  RunUntilKilled(path, 2);
  for (int64_t line = 3; line <= 5; ++line) {  // killed again and again
    OutputFile file(path, ExistingOutput::kResume);
    EXPECT_EQ(file.Begin(kManifest).lines, line - 1);
    file.Write("line " + std::to_string(line) + "\n");
    file.Commit(line);
  }
  {
    OutputFile file(path, ExistingOutput::kResume);
    EXPECT_EQ(file.Begin(kManifest).lines, 5);
    file.Finish();
  }
  EXPECT_EQ(FileText(path), "line 1\nline 2\nline 3\nline 4\nline 5\n");
  EXPECT_FALSE(fs::exists(folder / "out.part"));
  EXPECT_FALSE(fs::exists(folder / "out.journal"));
  EXPECT_TRUE(OutputFile(path, ExistingOutput::kResume).finished());
}

TEST(Journal, WhatIsAnotherRunsExistsOrIsNotResumed) {
  const TemporaryFolder folder;
  RunUntilKilled(folder / "out", 2);
  const RunManifest other = {{"input", "cc"}, {"model", "bb"}};
  const auto code_of = [&](ExistingOutput existing) {
    return CodeOf([&] { OutputFile(folder / "out", existing).Begin(other); });
  };
  EXPECT_EQ(code_of(ExistingOutput::kGoOn), ErrorCode::kOutputExists);
  EXPECT_EQ(code_of(ExistingOutput::kResume), ErrorCode::kResume);
  EXPECT_EQ(code_of(ExistingOutput::kRefuse), ErrorCode::kOutputExists);
  OutputFile file(folder / "out", ExistingOutput::kGoOn);
  EXPECT_EQ(file.Begin(kManifest).lines, 2);
}

// Filesystems without attributes: the journal stays, and says of which run the output is.
TEST(Journal, AFinishedOutputIsKnownByTheJournalBesideIt) {
  const TemporaryFolder folder;
  const fs::path path = folder / "out";
  RunUntilKilled(path, 2);
  const std::string journal = FileText(folder / "out.journal");
  {
    OutputFile file(path, ExistingOutput::kGoOn);
    file.Begin(kManifest);
    file.Finish();
  }
  const std::string lines = FileText(path);
  fs::remove(path);
  WriteFile(path, lines);  // without the attribute
  EXPECT_EQ(CodeOf([&] { OutputFile(path, ExistingOutput::kGoOn); }), ErrorCode::kOutputExists);
  EXPECT_EQ(CodeOf([&] { OutputFile(path, ExistingOutput::kResume); }), ErrorCode::kResume);
  WriteFile(folder / "out.journal", journal);
  const OutputFile file(path, ExistingOutput::kGoOn);
  EXPECT_TRUE(file.finished());
  EXPECT_TRUE(file.IsOf(kManifest));
  EXPECT_FALSE(file.IsOf({{"input", "cc"}}));
}

// However many bytes of the journal's end are lost, the run goes on from the last whole record.
TEST(Journal, ATornTailNeverHappened) {
  const TemporaryFolder folder;
  const fs::path path = folder / "out";
  RunUntilKilled(path, 2);
  const std::string journal = FileText(folder / "out.journal");
  const std::string part = FileText(folder / "out.part");
  const std::size_t first = journal.find('\n') + 1;
  const std::size_t second = journal.find('\n', first) + 1;
  for (std::size_t size = 0; size <= journal.size(); ++size) {
    WriteFile(folder / "out.part", size < first ? "" : part);
    WriteFile(folder / "out.journal", journal.substr(0, size));
    const int64_t lines = size < second ? 0 : size < journal.size() ? 1 : 2;
    EXPECT_EQ(Resume(path).last.lines, lines) << size;
    if (size < first) continue;  // behind half a manifest it is not known for ours
    if (journal.substr(size, 1) == "\n") continue;  // garbage may be the newline that is missing
    for (const char* garbage : {"garbage", "garbage\n", "\n\n"}) {
      WriteFile(folder / "out.part", size < first ? "" : part);
      WriteFile(folder / "out.journal", journal.substr(0, size) + garbage);
      EXPECT_LE(Resume(path).last.lines, lines) << size << garbage;
    }
  }
}

TEST(Journal, DamageBeforeAWholeRecordIsCorruption) {
  const TemporaryFolder folder;
  const fs::path path = folder / "out";
  RunUntilKilled(path, 3);
  const std::string journal = FileText(folder / "out.journal");
  const std::size_t last = journal.rfind('\n', journal.size() - 2) + 1;
  // The end of the line before is left: without it the last two records are one torn one.
  for (std::size_t at = 0; at < last - 1; ++at) {
    std::string damaged = journal;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    WriteFile(folder / "out.journal", damaged);
    std::string message;
    EXPECT_EQ(ResumeFails(path, &message), ErrorCode::kCorrupt) << at;
    EXPECT_THAT(message, HasSubstr("out.journal: line ")) << at;
  }
}

// Returns what Begin leaves in the file's attribute; empty where the filesystem has none.
std::string MarkOf(const fs::path& path) {
  std::string mark(16, ' ');
  const ssize_t size = ::getxattr(path.c_str(), "user.spillway.run", mark.data(), mark.size());
  return size < 0 ? "" : mark;
}

TEST(Journal, AnotherRunIsRefusedByName) {
  const TemporaryFolder folder;
  RunUntilKilled(folder / "out", 1);
  const std::string mark = MarkOf(folder / "out.part");
  std::string message;
  EXPECT_EQ(ResumeFails(folder / "out", &message, {{"input", "other"}, {"model", "bb"}}),
            ErrorCode::kResume);
  EXPECT_THAT(message, HasSubstr("had another input (aa, now other);"));
  EXPECT_EQ(MarkOf(folder / "out.part"), mark);
}

TEST(Journal, AnEditedOutputIsRefused) {
  const TemporaryFolder folder;
  const fs::path part = folder / "out.part";
  RunUntilKilled(folder / "out", 3);
  std::string text = FileText(part);
  text[9] = 'X';  // in line 2
  WriteFile(part, text);
  std::string message;
  EXPECT_EQ(ResumeFails(folder / "out", &message), ErrorCode::kResume);
  EXPECT_THAT(message, HasSubstr("lines 2 to 2 are not what the run wrote"));
  EXPECT_EQ(FileText(part), text);
  WriteFile(part, "line 1\nline");
  EXPECT_EQ(ResumeFails(folder / "out", &message), ErrorCode::kResume);
  EXPECT_THAT(message, HasSubstr("ends at byte 11 but 14 were committed"));
}

TEST(Journal, WithoutARunOneBegins) {
  const TemporaryFolder folder;
  {
    OutputFile file(folder / "out", ExistingOutput::kResume);
    EXPECT_FALSE(file.finished());
    EXPECT_FALSE(file.InterruptedRun().has_value());
    EXPECT_EQ(file.Begin(kManifest).lines, 0);
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));  // as after any run without a line
  std::string message;
  WriteFile(folder / "out.part", "lines of nobody\n");
  EXPECT_EQ(ResumeFails(folder / "out", &message), ErrorCode::kResume);
  EXPECT_THAT(message, HasSubstr("no journal"));
  EXPECT_EQ(FileText(folder / "out.part"), "lines of nobody\n");
}

TEST(Journal, OnlyItsOwnKindOfFileIsReplaced) {
  const TemporaryFolder folder;
  WriteFile(folder / "out.journal", "Dear diary");
  OutputFile file(folder / "other", ExistingOutput::kRefuse);
  EXPECT_EQ(CodeOf([&] { OutputFile(folder / "out", ExistingOutput::kReplace); }),
            ErrorCode::kPath);
  EXPECT_EQ(FileText(folder / "out.journal"), "Dear diary");
}

TEST(Journal, AReplacingRunReplacesWhenResumed) {
  const TemporaryFolder folder;
  const fs::path path = folder / "out";
  WriteFile(path, "old\n");
  RunUntilKilled(path, 1, ExistingOutput::kReplace);
  EXPECT_EQ(FileText(path), "old\n");
  {
    OutputFile file(path, ExistingOutput::kResume);
    EXPECT_EQ(file.Begin(kManifest).lines, 1);
    file.Finish();
  }
  EXPECT_EQ(FileText(path), "line 1\n");
}

TEST(Journal, AnOutputThatAppearedIsNotReplaced) {
  const TemporaryFolder folder;
  RunUntilKilled(folder / "out", 1);
  WriteFile(folder / "out", "somebody's\n");
  std::string message;
  EXPECT_EQ(ResumeFails(folder / "out", &message), ErrorCode::kOutputExists);
  EXPECT_EQ(FileText(folder / "out"), "somebody's\n");
}

TEST(CompletionWriter, CountsWhatAnInterruptedRunWrote) {
  const TemporaryFolder folder;
  std::string whole_fingerprint;
  for (const int64_t stop : {4, 2, 0}) {  // 4: not interrupted
    SCOPED_TRACE(CaseOf("stop", stop));
    const fs::path path = folder / std::to_string(stop);
    const auto put = [](CompletionWriter& writer, int64_t begin, int64_t end) {
      for (int64_t line = begin; line <= end; ++line) writer.Expect(line);
      for (int64_t line = begin; line <= end; ++line) {
        if (line == 2) {
          writer.Put(BadLine(line));
        } else {
          writer.Put(RequestOfLine(line), Answer("t", {static_cast<TokenId>(line)}));
        }
      }
    };
    if (stop < 4) {
      CompletionWriter writer(path, WriterTokens(), TestWriterOptions());
      EXPECT_EQ(writer.Begin(kManifest), 0);
      put(writer, 1, stop);
      writer.Keep();
      writer.FlushFinished();
    }
    CompletionWriter writer(path, WriterTokens(), stop < 4 ? Resuming() : TestWriterOptions());
    const int64_t done = writer.Begin(kManifest);
    EXPECT_EQ(done, stop % 4);
    put(writer, done + 1, 4);
    writer.Finish();
    EXPECT_EQ(writer.earlier().num_lines(), done);
    EXPECT_EQ(writer.earlier().num_errors, done == 2 ? 1 : 0);
    EXPECT_EQ(writer.answers().num_lines(), 4 - done);
    EXPECT_EQ((writer.answers() + writer.earlier()).num_errors, 1);
    if (stop == 4) whole_fingerprint = writer.fingerprint();
    EXPECT_EQ(writer.fingerprint(), whole_fingerprint);
    EXPECT_EQ(FileText(path), FileText(folder / "4"));
  }
  const CompletionWriter writer(folder / "4", WriterTokens(), Resuming());
  ASSERT_TRUE(writer.finished());
  const std::vector<RunManifest> others = {{{"input", "aa"}}, {{"input", "bb"}}};
  const std::vector<RunManifest> either = {others[0], kManifest};
  EXPECT_EQ(CodeOf([&] { writer.FinishedRun(either, 5); }), ErrorCode::kResume);
  EXPECT_EQ(CodeOf([&] { writer.FinishedRun(others, 4); }), ErrorCode::kResume);
  if (MarkOf(folder / "4").empty()) GTEST_SKIP() << "the filesystem has no attributes";
  EXPECT_EQ(writer.FinishedRun(either, 4).num_errors, 1);
}

TEST(CompletionWriter, EmptyCompletionsOfTheInterruptedRunCountToo) {
  const TemporaryFolder folder;
  Request chat = RequestOfLine(3);
  chat.body = AnswerBody::kMessage;
  {
    CompletionWriter writer(folder / "out", WriterTokens(), TestWriterOptions());
    writer.Begin(kManifest);
    for (int64_t line = 1; line <= 3; ++line) writer.Expect(line);
    writer.Put(RequestOfLine(1), Answer("", {2}));
    writer.Put(RequestOfLine(2), Answer("a", {7}));
    writer.Put(chat, Answer("", {2}));
    writer.Keep();
    writer.FlushFinished();
  }
  CompletionWriter writer(folder / "out", WriterTokens(), Resuming());
  writer.Begin(kManifest);
  EXPECT_EQ(writer.earlier().num_empty, 2);
  EXPECT_EQ(writer.earlier().num_completions, 3);
}

// Finished lines behind a gap are in .part for people, and in .ahead for the resumed run.
TEST(CompletionWriter, LinesBehindAGapAreNotComputedAgain) {
  const TemporaryFolder folder;
  const fs::path path = folder / "out";
  {
    CompletionWriter writer(path, WriterTokens(), TestWriterOptions());
    writer.Begin(kManifest);
    for (int64_t line = 1; line <= 7; line += 2) writer.Expect(line);
    writer.Put(BadLine(1));
    writer.Put(RequestOfLine(5), Answer("t", {5}));
    writer.FlushFinished();
    EXPECT_EQ(writer.num_resumable(), 2);
    EXPECT_EQ(writer.num_written(), 2);
    EXPECT_EQ(writer.num_kept(), 0);  // beyond those
  }
  EXPECT_THAT(FileText(folder / "out.part"), HasSubstr("line 1"));
  {
    CompletionWriter writer(path, WriterTokens(), Resuming());
    EXPECT_EQ(writer.Begin(kManifest), 1);
    EXPECT_EQ(writer.earlier().num_errors, 1);
    EXPECT_EQ(writer.earlier().num_completions, 1);
    for (const int64_t line : {3, 5, 7}) {
      writer.Expect(line);
      EXPECT_EQ(writer.PutEarlier(line), line == 5);
    }
    writer.Put(RequestOfLine(7), Answer("u", {7}));
    writer.Put(RequestOfLine(3), Answer("s", {3}));
    writer.Finish();
    EXPECT_EQ(writer.answers().num_completions, 2);
  }
  EXPECT_FALSE(fs::exists(folder / "out.ahead"));
  CompletionWriter whole(folder / "whole", WriterTokens(), TestWriterOptions());
  for (int64_t line = 1; line <= 7; line += 2) whole.Expect(line);
  whole.Put(BadLine(1));
  for (const TokenId line : {3, 5, 7}) {
    whole.Put(RequestOfLine(line), Answer(std::string(1, "s-t-u"[line - 3]), {line}));
  }
  whole.Finish();
  EXPECT_EQ(FileText(path), FileText(folder / "whole"));
}

// Lines that were lost, or are of another run, are computed again.
TEST(AheadLines, WhatIsDamagedNeverHappened) {
  const TemporaryFolder folder;
  const fs::path path = folder / "ahead";
  const auto open = [&] { return Descriptor(::open(path.c_str(), O_RDWR | O_CREAT, 0600)); };
  {
    AheadLines lines(open(), "ahead", "digest");
    EXPECT_TRUE(lines.empty());
    lines.Append(3, "three\n");
    lines.Append(5, "five\n");
    lines.Sync();
  }
  const std::string text = FileText(path);
  EXPECT_TRUE(IsAhead(text));
  EXPECT_TRUE(IsAhead(text.substr(0, 9)));
  EXPECT_FALSE(IsAhead("three\n"));
  const AheadContent whole = ParseAhead(text, "digest");
  EXPECT_EQ(whole.answers, (std::map<int64_t, std::string>{{3, "three\n"}, {5, "five\n"}}));
  EXPECT_EQ(ParseAhead(text, "another").header_bytes, 0);
  for (std::size_t size = 0; size < text.size(); ++size) {
    const AheadContent cut = ParseAhead(text.substr(0, size), "digest");
    EXPECT_EQ(cut.answers.contains(5), false) << size;
    EXPECT_LE(cut.num_bytes, static_cast<int64_t>(size));
  }
  std::string flipped = text;
  flipped[flipped.size() - 3] ^= 1;
  const AheadContent damaged = ParseAhead(flipped, "digest");
  EXPECT_EQ(damaged.answers, (std::map<int64_t, std::string>{{3, "three\n"}}));
  AheadLines lines(open(), "ahead", damaged);
  lines.Append(7, "seven\n");
  EXPECT_EQ(ParseAhead(FileText(path), "digest").answers,
            (std::map<int64_t, std::string>{{3, "three\n"}, {7, "seven\n"}}));
  lines.Clear();
  EXPECT_TRUE(lines.empty());
  EXPECT_TRUE(ParseAhead(FileText(path), "digest").answers.empty());
}

}  // namespace
}  // namespace spillway
