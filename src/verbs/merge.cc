#include "src/verbs/merge.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/answers/earlier_line.h"
#include "src/answers/fingerprint.h"
#include "src/base/exit_status.h"
#include "src/base/report_file.h"
#include "src/base/stop_signal.h"
#include "src/base/terminal.h"
#include "src/requests/input_file.h"  // SameFile
#include "src/requests/input_form.h"
#include "src/requests/line_source.h"
#include "src/requests/request_parser.h"  // CustomIdOf
#include "src/verbs/merged_report.h"
#include "src/verbs/shard_outputs.h"
#include "src/verbs/whole_output.h"

namespace spillway {
namespace {

using Path = std::filesystem::path;

constexpr int64_t kLinesPerStopCheck = 256;

// The outputs of the shards, none of which is what is written.
const std::vector<Path>& ShardsOf(const Config& config) {
  for (const Path& shard : config.shard_files) {
    for (const auto& [flag, path] :
         {std::pair("--output", config.output), {"--report", config.report}}) {
      if (path.empty() || !SameFile(shard, path)) continue;
      throw Error(ErrorCode::kInput,
                  fmt::format("{} is one of the outputs to merge; give another name", flag));
    }
  }
  return config.shard_files;
}

class Merge {
 public:
  explicit Merge(const Config& config)
      : config_(config),
        shards_(ShardsOf(config)),
        report_(ReportKind::kReport, "--report", config.report, {config.input, config.output, {}}),
        file_(config) {}

  int Run() {
    if (config_.input.empty()) {
      TakeByNumber();
    } else {
      TakeByInput();
    }
    WarnOfGaps();
    file_.Finish();
    report_.Write(MergedReport(totals_, shards_.count(), fingerprint_.Hex(), config_.report));
    PrintTo(TerminalOf(config_),
            fmt::format("{} lines of {} shards: {} {}, {} errors\n", totals_.num_lines(),
                        shards_.count(), totals_.num_answers, Scores() ? "scores" : "completions",
                        totals_.num_errors));
    return totals_.num_errors == 0 ? 0 : kSomeLinesCarryErrors;
  }

 private:
  bool Scores() const { return shards_.form() == AnswerForm::kScore; }

  void TakeByNumber() {
    if (Scores()) {
      throw Error(ErrorCode::kInput,
                  "scores do not say which line of the input they are of; give the job's --input");
    }
    int64_t due = 1;
    while (const std::optional<int64_t> number = shards_.NextNumber()) {
      if (*number > due && num_gaps_ == 0) first_gap_ = due;
      num_gaps_ += *number - due;
      due = *number + 1;
      Add(*number);
    }
  }

  // Only the input tells a blank line from an answer that was lost.
  void WarnOfGaps() const {
    if (num_gaps_ == 0) return;
    PrintWarning(fmt::format(
        "no shard has an answer to {} line{} of the input, the first line {}; {} blank there, or "
        "cut off here: --input FILE tells",
        num_gaps_, num_gaps_ == 1 ? "" : "s", first_gap_, num_gaps_ == 1 ? "it is" : "they are"));
  }

  // Names may differ where folders do: no fault, but worth a word.
  void CompareModel(const std::string& model, const Path& path) {
    if (model.empty() || model == model_ || warned_of_model_) return;
    if (model_.empty()) {
      model_ = model;
      return;
    }
    warned_of_model_ = true;
    PrintWarning(fmt::format("{}: its answers are of model \"{}\", others' of \"{}\"",
                             Printable(path.string(), 160), Printable(model, 80),
                             Printable(model_, 80)));
  }

  void TakeByInput() {
    constexpr int64_t kMaxLineBytes = int64_t{1} << 30;  // too long ones are answered too
    LineSource lines(config_.input, config_.input.string(), kMaxLineBytes);
    const bool has_ids = FormOf(config_.input) == InputForm::kJsonLines;
    while (const std::optional<Line> line = lines.Next()) {
      if (line->blank) continue;
      const std::string id = has_ids ? CustomIdOf(*line) : "";
      const std::string answered = Add(line->number);
      if (answered == (id.empty() ? std::to_string(line->number) : id)) continue;
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: answers custom_id \"{}\" where line {} of the input is due",
                              Printable(shards_.PathOf(line->number).string(), 120),
                              Printable(answered, 60), line->number));
    }
    shards_.RefuseRest();
  }

  // Returns the custom_id of the answer.
  std::string Add(int64_t number) {
    if (totals_.num_lines() % kLinesPerStopCheck == 0) ThrowIfStopRequested();
    const Path& path = shards_.PathOf(number);
    const std::string text = shards_.Take(number);
    try {
      const EarlierLine line = ParseEarlierLine(text, shards_.form());
      totals_.Add(line);
      CompareModel(line.model, path);
      fingerprint_.Add(line.tokens);
      file_.Add(text);
      return line.custom_id;
    } catch (const nlohmann::json::exception&) {
      throw Error(ErrorCode::kCorrupt,
                  fmt::format("{}: has a line that no run writes; copy it again",
                              Printable(path.string(), 160)));
    }
  }

  const Config& config_;
  ShardOutputs shards_;
  ReportFile report_;
  WholeOutput file_;
  MergedTotals totals_;
  TokenFingerprint fingerprint_;
  int64_t num_gaps_ = 0;  // lines of the input that no shard answers
  int64_t first_gap_ = 0;
  std::string model_;  // of the first completion
  bool warned_of_model_ = false;
};

}  // namespace

int RunMerge(const Config& config) { return Merge(config).Run(); }

}  // namespace spillway
