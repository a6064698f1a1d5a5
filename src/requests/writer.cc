#include "src/requests/writer.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "spillway/error.h"
#include "src/requests/fingerprint.h"
#include "src/requests/output_file.h"
#include "src/requests/output_line.h"

namespace spillway {
namespace {

// A line that was announced and not written yet.
struct Pending {
  int64_t line = 0;
  bool finished = false;
  std::string text;
  std::vector<TokenId> tokens;
  ScoreTotals scores;
};

}  // namespace

struct CompletionWriter::State {
  State(const std::filesystem::path& path, const Tokenizer& used, WriterOptions given)
      : file(path, given.overwrite), tokenizer(used), options(std::move(given)) {}

  void Finish(Pending answer);
  void WriteReady();
  void WriteFirst();

  OutputFile file;
  const Tokenizer& tokenizer;
  WriterOptions options;
  std::deque<Pending> pending;  // ascending lines
  TokenFingerprint fingerprint;
  ScoreTotals scores;
  int64_t last_expected = 0;
  int64_t num_completions = 0;
  int64_t num_errors = 0;
};

void CompletionWriter::State::Finish(Pending answer) {
  const auto found = std::ranges::lower_bound(pending, answer.line, {}, &Pending::line);
  SPILLWAY_CHECK(found != pending.end() && found->line == answer.line && !found->finished);
  *found = std::move(answer);
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
  scores.num_tokens += pending.front().scores.num_tokens;
  scores.logprob_sum += pending.front().scores.logprob_sum;
  pending.pop_front();
}

CompletionWriter::CompletionWriter(const std::filesystem::path& path, const Tokenizer& tokenizer,
                                   WriterOptions options)
    : state_(std::make_unique<State>(path, tokenizer, std::move(options))) {}

CompletionWriter::~CompletionWriter() = default;

void CompletionWriter::SetRunFingerprint(uint64_t fingerprint) {
  SPILLWAY_CHECK(state_->last_expected == 0);
  state_->options.run_fingerprint = fingerprint;
}

void CompletionWriter::Expect(int64_t line) {
  SPILLWAY_CHECK(line > state_->last_expected);
  state_->last_expected = line;
  state_->pending.emplace_back().line = line;
}

void CompletionWriter::Put(const Request& request, const Completion& completion) {
  ++state_->num_completions;
  Pending answer = {.line = request.line, .finished = true, .text = {}, .tokens = {}, .scores = {}};
  if (state_->options.form == AnswerForm::kScore) {
    answer.text = ScoreLine(request, completion.scores);
    answer.scores = TotalsOf(completion.scores);
  } else {
    answer.text = CompletionLine(request, completion, state_->tokenizer, state_->options);
    answer.tokens = completion.tokens;
  }
  state_->Finish(std::move(answer));
}

void CompletionWriter::Put(const LineError& error) {
  ++state_->num_errors;
  state_->Finish({.line = error.line,
                  .finished = true,
                  .text = ErrorOutputLine(error, state_->options),
                  .tokens = {},
                  .scores = {}});
}

void CompletionWriter::FlushFinished() {
  if (state_->file.failed()) return;
  std::deque<Pending>& pending = state_->pending;
  std::erase_if(pending, [](const Pending& line) { return !line.finished; });
  state_->WriteReady();
  state_->file.Sync();
}

void CompletionWriter::Commit() {
  SPILLWAY_CHECK(state_->pending.empty());
  state_->file.Commit();
}

int64_t CompletionWriter::num_completions() const { return state_->num_completions; }
int64_t CompletionWriter::num_errors() const { return state_->num_errors; }
std::string CompletionWriter::fingerprint() const { return state_->fingerprint.Hex(); }
ScoreTotals CompletionWriter::scores() const { return state_->scores; }
std::filesystem::path CompletionWriter::part_path() const { return state_->file.part_path(); }

}  // namespace spillway
