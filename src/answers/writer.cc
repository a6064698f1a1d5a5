#include "src/answers/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "spillway/error.h"
#include "src/answers/earlier_line.h"
#include "src/answers/fingerprint.h"
#include "src/answers/output_line.h"
#include "src/base/clock.h"

namespace spillway {
namespace {

// A commit costs two syncs: a millisecond, or thirty on a busy disk.
constexpr double kCommitShare = 0.02;

// Bytes of the .ahead file, answers that have been written since among them, from which on it is
// begun anew.
constexpr int64_t kMaxAheadBytes = 256 << 20;

// A line that was announced and not written yet.
struct Pending {
  int64_t line = 0;
  int64_t number = 0;  // of the line, among those that are not blank
  bool finished = false;
  bool kept = false;  // the disk has it, though it waits
  std::string text;
  std::vector<TokenId> tokens;
  ScoreTotals scores;
};

void Count(const EarlierLine& line, AnswerCounts& counts) {
  ++(line.is_error ? counts.num_errors : counts.num_completions);
  counts.num_empty += line.is_empty ? 1 : 0;
}

void Add(const ScoreTotals& more, ScoreTotals& totals) {
  totals.num_tokens += more.num_tokens;
  totals.logprob_sum += more.logprob_sum;
}

}  // namespace

struct CompletionWriter::State {
  State(const std::filesystem::path& path, const Tokenizer& used, WriterOptions given)
      : file(path, given.existing), tokenizer(used), options(std::move(given)) {
    file.SetCommand(options.command);
  }

  void TakeEarlier(std::string_view text);
  void TakeAhead(int64_t number, std::string text);

  void Finish(Pending answer);
  void CommitFinished();
  void KeepWaiting();
  void WriteReady();
  void WriteFirst();

  OutputFile file;
  const Tokenizer& tokenizer;
  WriterOptions options;
  std::deque<Pending> pending;       // ascending lines
  std::map<int64_t, Pending> ahead;  // [number]: of an earlier run, not expected yet
  TokenFingerprint fingerprint;
  ScoreTotals scores;
  ScoreTotals earlier_scores;
  int64_t last_expected = 0;  // line
  int64_t num_expected = 0;   // those of an earlier run included
  AnswerCounts answers;
  AnswerCounts earlier;
  int64_t num_written = 0;    // lines, those of an earlier run included
  int64_t num_committed = 0;  // of them
  int64_t num_waiting = 0;    // finished and pending
  int64_t num_kept = 0;       // of them, on the disk
  int64_t num_resumable = 0;
  double committed_s = 0.0;  // when the last commit ended
  double commit_s = 0.0;     // what it took
};

void CompletionWriter::State::TakeEarlier(std::string_view text) {
  const EarlierLine line = ParseEarlierLine(text, options.form);
  Count(line, earlier);
  fingerprint.Add(line.tokens);
  Add(line.scores, scores);
  Add(line.scores, earlier_scores);
  ++num_written;
}

void CompletionWriter::State::TakeAhead(int64_t number, std::string text) {
  EarlierLine answer = ParseEarlierLine(text, options.form);
  Count(answer, earlier);
  Add(answer.scores, earlier_scores);
  ahead[number] = {0, number, true, true, std::move(text), std::move(answer.tokens), answer.scores};
}

void CompletionWriter::State::Finish(Pending answer) {
  const auto found = std::ranges::lower_bound(pending, answer.line, {}, &Pending::line);
  SPILLWAY_CHECK(found != pending.end() && found->line == answer.line && !found->finished);
  answer.number = found->number;
  *found = std::move(answer);
  ++num_waiting;
  num_kept += found->kept ? 1 : 0;
  WriteReady();
}

// Line by line and unbuffered: a line may stand for minutes of computing, a write costs
// microseconds.
void CompletionWriter::State::WriteReady() {
  while (!pending.empty() && pending.front().finished) WriteFirst();
}

void CompletionWriter::State::WriteFirst() {
  file.Write(pending.front().text);
  fingerprint.Add(pending.front().tokens);
  Add(pending.front().scores, scores);
  --num_waiting;
  num_kept -= pending.front().kept ? 1 : 0;
  pending.pop_front();
  ++num_written;
}

CompletionWriter::CompletionWriter(const std::filesystem::path& path, const Tokenizer& tokenizer,
                                   WriterOptions options)
    : state_(std::make_unique<State>(path, tokenizer, std::move(options))) {}

CompletionWriter::~CompletionWriter() = default;

bool CompletionWriter::finished() const { return state_->file.finished(); }

AnswerCounts CompletionWriter::FinishedRun(std::span<const RunManifest> runs,
                                           int64_t num_lines) const {
  SPILLWAY_CHECK(finished());
  AnswerCounts output;
  const auto is_this = [&](const RunManifest& run) { return state_->file.IsOf(run); };
  if (std::ranges::any_of(runs, is_this)) {
    std::ifstream file(state_->file.path());
    try {
      for (std::string text; std::getline(file, text);)
        Count(ParseEarlierLine(text, state_->options.form), output);
      if (output.num_lines() == num_lines) return output;
    } catch (const nlohmann::json::exception&) {  // edited since: refused as any other
    }
  }
  state_->file.RefuseFinished();
}

std::optional<RunManifest> CompletionWriter::InterruptedRun() const {
  return state_->file.InterruptedRun();
}

void CompletionWriter::SetRunFingerprint(uint64_t fingerprint) {
  SPILLWAY_CHECK(state_->last_expected == 0);
  state_->options.run_fingerprint = fingerprint;
}

int64_t CompletionWriter::Begin(const RunManifest& manifest) {
  SPILLWAY_CHECK(state_->last_expected == 0);
  const CommitRecord last =
      state_->file.Begin(manifest, [this](std::string_view line) { state_->TakeEarlier(line); });
  state_->num_committed = last.lines;
  SPILLWAY_CHECK(state_->num_written == last.lines);
  state_->num_expected = last.lines;
  for (auto& [number, text] : state_->file.TakeAhead()) {
    // Lines before it have been committed since they were kept.
    if (number > last.lines) state_->TakeAhead(number, std::move(text));
  }
  state_->num_resumable = last.lines + std::ssize(state_->ahead);
  return last.lines;
}

bool CompletionWriter::PutEarlier(int64_t line) {
  SPILLWAY_CHECK(line == state_->last_expected);
  auto found = state_->ahead.extract(state_->num_expected);
  if (found.empty()) return false;
  found.mapped().line = line;
  state_->Finish(std::move(found.mapped()));
  return true;
}

void CompletionWriter::Expect(int64_t line) {
  SPILLWAY_CHECK(line > state_->last_expected);
  state_->last_expected = line;
  Pending& pending = state_->pending.emplace_back();
  pending.line = line;
  pending.number = ++state_->num_expected;
}

void CompletionWriter::Put(const Request& request, const Completion& completion) {
  ++state_->answers.num_completions;
  Pending answer;
  answer.line = request.line;
  answer.finished = true;
  if (state_->options.form == AnswerForm::kScore) {
    answer.text = ScoreLine(request, completion.scores);
    answer.scores = TotalsOf(completion.scores);
  } else {
    answer.text = CompletionLine(request, completion, state_->tokenizer, state_->options);
    answer.tokens = completion.tokens;
    state_->answers.num_empty += completion.text.empty() ? 1 : 0;
  }
  state_->Finish(std::move(answer));
  CommitIfDue();
}

void CompletionWriter::Put(const LineError& error) {
  ++state_->answers.num_errors;
  Pending answer;
  answer.line = error.line;
  answer.finished = true;
  answer.text = ErrorOutputLine(error, state_->options);
  state_->Finish(std::move(answer));
}

void CompletionWriter::State::CommitFinished() {
  if (num_written == num_committed && num_waiting == num_kept) return;
  const double begin_s = NowSeconds();
  if (num_written > num_committed) file.Commit(num_written);
  num_committed = num_written;
  KeepWaiting();
  num_resumable = num_committed + num_kept + std::ssize(ahead);
  committed_s = NowSeconds();
  commit_s = committed_s - begin_s;
}

// Rows of unlike lengths end in another order than they came in: what waits for the longest ones
// may be most of a run.
void CompletionWriter::State::KeepWaiting() {
  const bool all_expected = ahead.empty();
  const bool too_long = file.ahead_bytes() > kMaxAheadBytes;
  if (all_expected && (num_waiting == 0 || too_long)) {
    file.ForgetAhead();
    for (Pending& answer : pending) answer.kept = false;
    num_kept = 0;
  }
  if (num_waiting == num_kept) return;
  for (Pending& answer : pending) {
    if (!answer.finished || answer.kept) continue;
    file.KeepAhead(answer.number, answer.text);
    answer.kept = true;
  }
  num_kept = num_waiting;
  file.SyncAhead();
}

void CompletionWriter::CommitIfDue() {
  if (kCommitShare * (NowSeconds() - state_->committed_s) > state_->commit_s)
    state_->CommitFinished();
}

void CompletionWriter::FlushFinished() {
  if (state_->file.failed()) return;
  state_->CommitFinished();
  std::deque<Pending>& pending = state_->pending;
  std::erase_if(pending, [](const Pending& line) { return !line.finished; });
  state_->WriteReady();
  state_->file.Sync();
}

void CompletionWriter::Keep() { state_->file.Keep(); }

void CompletionWriter::Finish() {
  SPILLWAY_CHECK(state_->pending.empty());
  state_->file.Finish();
}

int64_t CompletionWriter::num_resumable() const { return state_->num_resumable; }
int64_t CompletionWriter::num_written() const { return state_->num_written; }
int64_t CompletionWriter::num_kept() const { return state_->num_kept + std::ssize(state_->ahead); }
AnswerCounts CompletionWriter::answers() const { return state_->answers; }
AnswerCounts CompletionWriter::earlier() const { return state_->earlier; }
std::string CompletionWriter::fingerprint() const { return state_->fingerprint.Hex(); }
ScoreTotals CompletionWriter::scores() const { return state_->scores; }
ScoreTotals CompletionWriter::earlier_scores() const { return state_->earlier_scores; }
std::filesystem::path CompletionWriter::part_path() const { return state_->file.part_path(); }
std::filesystem::path CompletionWriter::ahead_path() const { return state_->file.ahead_path(); }

}  // namespace spillway
