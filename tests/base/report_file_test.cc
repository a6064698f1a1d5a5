// Files that --report may replace, and that no link leads it elsewhere.
#include "src/base/report_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <optional>
#include <string>
#include <utility>

#include "spillway/error.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEarlier = "{\n  \"version\": 1,\n  \"throughput\": \"longer\"}";

class ReportFileTest : public testing::Test {
 protected:
  ReportFileTest() : input_(folder_.Write("in.jsonl", "prompts")), output_(folder_ / "out.jsonl") {}

  // The code of the refusal; nullopt when the report was written.
  std::optional<ErrorCode> Write(const fs::path& path) const {
    try {
      ReportFile(ReportKind::kReport, "--report", path, {input_, output_, other_report_})
          .Write("{}\n");
      return std::nullopt;
    } catch (const Error& error) {
      return error.code();
    }
  }

  TemporaryFolder folder_;
  fs::path input_;
  fs::path output_;
  fs::path other_report_;
};

TEST_F(ReportFileTest, AnEarlierReportIsReplaced) {
  const fs::path path = folder_.Write("r.json", kEarlier);
  folder_.Write("r.json.part", kEarlier);  // of a run that was killed
  EXPECT_EQ(Write(path), std::nullopt);
  EXPECT_EQ(FileText(path), "{}\n");
  EXPECT_FALSE(fs::exists(folder_ / "r.json.part"));
}

TEST_F(ReportFileTest, WhatIsNoReportIsNeverReplaced) {
  for (const std::string content :
       {"{\n  \"version\": \"1.0\", \"throughput\": 1}", "{\"version\": 3, \"lockfile\": 1}",
        "{\"throughput\": 9}", "{\"architectures\": []}", "notes\n", "{\"version\": 1,"}) {
    const fs::path path = folder_.Write("r.json", content);
    EXPECT_EQ(Write(path), ErrorCode::kOutputExists) << content;
    EXPECT_EQ(FileText(path), content);
    ReportFile::InOwnFolder("cache", path).Write("{}\n");
    EXPECT_EQ(FileText(path), "{}\n");
  }
}

TEST_F(ReportFileTest, WhatAnotherRunHasLeftIsKept) {
  folder_.Write("answers.part", "{\"custom_id\": 1}\n");
  EXPECT_EQ(Write(folder_ / "answers"), ErrorCode::kOutputExists);
  EXPECT_TRUE(fs::exists(folder_ / "answers.part"));
  folder_.Write("others.journal", "{}");
  EXPECT_EQ(Write(folder_ / "others"), ErrorCode::kOutputExists);
  // A refusal for the file's own sake leaves the part, too.
  folder_.Write("mine", "notes");
  folder_.Write("mine.part", kEarlier);
  EXPECT_EQ(Write(folder_ / "mine"), ErrorCode::kOutputExists);
  EXPECT_TRUE(fs::exists(folder_ / "mine.part"));
}

TEST_F(ReportFileTest, APartThatAppearsDuringTheRunIsKept) {
  const ReportFile report(ReportKind::kReport, "--report", folder_ / "r.json",
                          {input_, output_, {}});
  folder_.Write("r.json.part", "answers\n");
  EXPECT_THROW(report.Write("{}\n"), Error);
  EXPECT_EQ(FileText(folder_ / "r.json.part"), "answers\n");
}

TEST_F(ReportFileTest, OneKindNeverTakesThePlaceOfAnother) {
  const std::pair<ReportKind, std::string> files[] = {
      {ReportKind::kReport, kEarlier},
      {ReportKind::kReport, R"({"version":1,"interrupted":true,"model":{},"throughput":{}})"},
      {ReportKind::kReport, R"({"version":1,"calibration":{}})"},
      {ReportKind::kReport, R"({"version":1,"sweep":{}})"},
      {ReportKind::kTrace, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n]}"},
      {ReportKind::kPolicy, R"({"version": 1, "weight_frac": {}})"},
      {ReportKind::kPolicy, R"({"version": 1, "kv_bits": [8, 4]})"},
      // Written by hand, sorted by another program, or by an earlier version.
      {ReportKind::kPolicy, R"({"version":1,"kv":{"policy":"full"},"gpu_batch_size":2})"},
      {ReportKind::kPolicy, R"({"activation_frac":{},"version":1})"},
      {ReportKind::kMachine, R"({"version": 1, "name": "h100", "cap_bytes": {}})"},
      {ReportKind::kMachine, R"({"version": 2, "device": "cpu", "link_bytes_per_s": {}})"},
      {ReportKind::kCosts, R"({ "identity": "a", "costs": [] })"}};
  for (const auto& [kind, content] : files) {
    for (const auto& [other, ignored] : files) {
      const fs::path path = folder_.Write("f.json", content);
      if (kind == other) {
        EXPECT_NO_THROW(ReportFile(other, "--output", path, {})) << content;
      } else {
        EXPECT_THROW(ReportFile(other, "--output", path, {}), Error) << content;
      }
    }
    // One that holds nothing is nobody's.
    EXPECT_NO_THROW(ReportFile(kind, "--output", folder_.Write("empty", ""), {}));
  }
}

TEST_F(ReportFileTest, WhatAKilledRunBeganIsReplaced) {
  for (const char* begun :
       {"{", "{\n  \"vers", R"({"version":1,"weight_frac":{"gp)", R"({"display)"}) {
    fs::remove(folder_ / "r.json");
    folder_.Write("r.json.part", begun);
    EXPECT_EQ(Write(folder_ / "r.json"), std::nullopt) << begun;
  }
}

TEST_F(ReportFileTest, TheInputIsNeverReplaced) {
  fs::create_hard_link(input_, folder_ / "hard");
  fs::create_symlink(input_, folder_ / "soft");
  fs::create_directory(folder_ / "sub");
  for (const char* name : {"in.jsonl", "hard", "soft", "sub/../in.jsonl"}) {
    EXPECT_EQ(Write(folder_ / name), ErrorCode::kInput) << name;
  }
  // The temporary file beside the report would be it.
  input_ = folder_.Write("in.part", "prompts");
  EXPECT_EQ(Write(folder_ / "in"), ErrorCode::kInput);
  EXPECT_EQ(FileText(input_), "prompts");
}

TEST_F(ReportFileTest, TheOutputIsNeverReplaced) {
  for (const char* name : {"out.jsonl", "out.jsonl.part", "./out.jsonl"}) {
    EXPECT_EQ(Write(folder_ / name), ErrorCode::kPath) << name;
  }
  folder_.Write("out.jsonl", "lines");
  fs::create_hard_link(output_, folder_ / "hard");
  EXPECT_EQ(Write(folder_ / "hard"), ErrorCode::kPath);
  output_ = folder_ / "answers.part";
  EXPECT_EQ(Write(folder_ / "answers"), ErrorCode::kPath);
  output_ = "-";
  EXPECT_EQ(Write("/dev/stdout"), ErrorCode::kPath);
}

TEST_F(ReportFileTest, AnotherReportIsNeverReplaced) {
  other_report_ = folder_ / "t.json";
  for (const char* name : {"t.json", "t.json.part", "./t.json"}) {
    EXPECT_EQ(Write(folder_ / name), ErrorCode::kPath) << name;
  }
  other_report_ = folder_.Write("r.json.part", "of the other");
  EXPECT_EQ(Write(folder_ / "r.json"), ErrorCode::kPath);
  EXPECT_EQ(FileText(other_report_), "of the other");
}

TEST_F(ReportFileTest, WhatIsDiscardedLeavesTheEarlierOne) {
  const fs::path path = folder_.Write("r.json", kEarlier);
  const ReportFile report(ReportKind::kReport, "--report", path, {input_, output_, {}});
  const Descriptor part = report.Create();
  WriteAll(part, "{", "part");
  report.Discard();
  EXPECT_EQ(FileText(path), kEarlier);
  EXPECT_FALSE(fs::exists(folder_ / "r.json.part"));
}

TEST_F(ReportFileTest, NoLinkIsFollowed) {
  const fs::path victim = folder_.Write("victim", "precious");
  fs::create_symlink(victim, folder_ / "r.json.part");
  EXPECT_EQ(Write(folder_ / "r.json"), ErrorCode::kPath);
  fs::create_symlink(victim, folder_ / "link");
  EXPECT_EQ(Write(folder_ / "link"), ErrorCode::kPath);
  EXPECT_EQ(FileText(victim), "precious");
}

TEST_F(ReportFileTest, ALinkThatAppearsDuringTheRunIsNotFollowed) {
  const fs::path victim = folder_.Write("victim", "precious");
  const ReportFile report(ReportKind::kReport, "--report", folder_ / "r.json",
                          {input_, output_, {}});
  fs::create_symlink(victim, folder_ / "r.json.part");
  EXPECT_THROW(report.Write("{}\n"), Error);
  EXPECT_EQ(FileText(victim), "precious");
}

TEST_F(ReportFileTest, WhatIsNoFileIsRefusedAtOnce) {
  for (const fs::path& path :
       {folder_.path(), folder_ / "missing/r.json", folder_ / "", fs::path("-")}) {
    EXPECT_THROW(ReportFile(ReportKind::kReport, "--report", path, {input_, output_, {}}), Error)
        << path;
  }
}

TEST_F(ReportFileTest, DevicesAreWrittenInPlace) {
  EXPECT_EQ(Write("/dev/null"), std::nullopt);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(Write("/dev/full"), ErrorCode::kDiskSpace);
  EXPECT_EQ(Write(""), std::nullopt);
}

}  // namespace
}  // namespace spillway
