#include "src/requests/scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>

#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "src/base/stop_signal.h"
#include "src/requests/custom_ids.h"
#include "src/requests/input_form.h"
#include "src/requests/line_source.h"
#include "src/requests/request_parser.h"

namespace spillway {
namespace {

constexpr int64_t kLinesPerStopCheck = 256;

// Every step-th request; where that gives too many, every second of them goes and the step doubles.
class EvenSample {
 public:
  explicit EvenSample(int64_t max_size) : max_size_(max_size) {}

  // `number`: of the request, from 0.
  void Add(int64_t number, const RequestShape& row, std::vector<RequestShape>& sample) {
    if (number % step_ != 0) return;
    if (std::ssize(sample) == max_size_) {
      Thin(sample);
      if (number % step_ != 0) return;
    }
    sample.push_back(row);
  }

 private:
  void Thin(std::vector<RequestShape>& sample) {
    std::size_t kept = 0;
    for (std::size_t at = 0; at < sample.size(); at += 2) sample[kept++] = sample[at];
    sample.resize(kept);
    step_ *= 2;
  }

  int64_t max_size_;
  int64_t step_ = 1;
};

// An input file, and how its lines are read.
class Input {
 public:
  Input(const std::filesystem::path& path, const Tokenizer& tokenizer, const ReaderOptions& options)
      : path_(path),
        name_(InputName(path, options)),
        max_line_bytes_(options.max_line_bytes),
        form_(FormOf(name_)),
        shard_(options.shard),
        parser_(form_, tokenizer, options) {}

  const std::string& name() const { return name_; }
  InputForm form() const { return form_; }
  LineSource Open() const { return {path_, name_, max_line_bytes_}; }

  bool Wants(const Line& line) const { return shard_.Has(line.number); }

  // Throws: Error kInterrupted.
  ParsedLine Parse(const Line& line) const {
    if (line.number % kLinesPerStopCheck == 0) ThrowIfStopRequested();
    return parser_.Parse(line);
  }

 private:
  const std::filesystem::path& path_;
  std::string name_;
  int64_t max_line_bytes_;
  InputForm form_;
  Shard shard_;
  RequestParser parser_;
};

std::string IdOf(const std::string& custom_id, int64_t line) {
  return custom_id.empty() ? std::to_string(line) : custom_id;
}

// Reads the file again for the first line with that id; nullopt: there is none before `end`.
std::optional<int64_t> FirstLineWith(const std::string& id, int64_t end, const Input& input) {
  LineSource lines = input.Open();
  while (const std::optional<Line> line = lines.Next()) {
    if (line->number >= end) break;
    if (!line->blank && IdOf(CustomIdOf(*line), line->number) == id) return line->number;
  }
  return std::nullopt;
}

void RefuseDuplicate(const std::string& custom_id, int64_t line, const Input& input) {
  const std::string id = IdOf(custom_id, line);
  const std::optional<int64_t> first = FirstLineWith(id, line, input);
  if (!first) return;
  const bool numbered = id == std::to_string(line) || id == std::to_string(*first);
  throw Error(
      ErrorCode::kInput,
      fmt::format("{}: custom_id \"{}\" is that of lines {} and {}{}; give each its own, or "
                  "--allow-duplicate-ids",
                  Printable(input.name()), Printable(id, 60), *first, line,
                  numbered ? " (a line without one has its number)" : ""));
}

void AddId(const std::string& custom_id, int64_t line, const Input& input, CustomIds& ids) {
  if (!ids.Add(line, custom_id)) RefuseDuplicate(custom_id, line, input);
}

// Tokens of a text that get a score.
int64_t NumScored(const Request& request) {
  const ScoredText& text = *request.scored;
  return std::max<int64_t>(0, std::ssize(request.prompt) + std::ssize(text.told) - text.first);
}

void Count(const LineError& error, InputScan& scan) {
  const auto found = std::ranges::find(scan.bad_lines, error.code, &BadLines::code);
  if (found != scan.bad_lines.end()) {
    ++found->num_lines;
  } else {
    scan.bad_lines.push_back({error.code, 1, error.message});
  }
}

void Count(const Request& request, InputScan& scan, EvenSample& sample) {
  const RequestShape row = ShapeOf(request);
  if (row.slots() > scan.max_row_tokens) scan.longest_line = request.line;
  scan.TakeLongest(row);
  scan.TakePrefix(request);
  scan.num_prompt_tokens += row.prompt_tokens;
  scan.num_new_tokens += request.scored ? NumScored(request) : row.max_new_tokens;
  sample.Add(scan.num_requests++, row, scan.sample);
  scan.NoteCut(request);
}

}  // namespace

void InputScan::TakeLongest(const RequestShape& row) {
  max_prompt_logits = std::max(max_prompt_logits, row.prompt_logits);
  max_prompt_tokens = std::max(max_prompt_tokens, row.prompt_tokens);
  max_row_tokens = std::max(max_row_tokens, row.slots());
}

void InputScan::TakePrefix(const Request& request) {
  const std::span<const TokenId> before = request.BeforeLogits();
  if (num_requests == 0) return prefix.assign(before.begin(), before.end());
  const auto differ = std::ranges::mismatch(prefix, before);
  const int64_t steps_before = std::ssize(prefix) / kPrefixStep;
  prefix.erase(differ.in1, prefix.end());
  const int64_t lost = (steps_before - std::ssize(prefix) / kPrefixStep) * kPrefixStep;
  if (num_requests >= kAlikeRequests && lost > other_beginning.tokens_lost)
    other_beginning = {request.line, num_requests, lost};
}

void InputScan::NoteCut(const Request& request) {
  if (request.num_cut > 0 && num_cut++ == 0) first_cut_line = request.line;
}

InputScan ScanInput(const std::filesystem::path& path, const Tokenizer& tokenizer,
                    const ReaderOptions& options, int64_t max_sample) {
  SPILLWAY_CHECK(max_sample >= 2);
  const Input input(path, tokenizer, options);
  LineSource lines = input.Open();
  RefuseOtherForm(lines.Head(), input.form(), input.name());
  const bool checks_ids = !options.allow_duplicate_ids && input.form() == InputForm::kJsonLines;
  InputScan scan;
  EvenSample sample(max_sample);
  CustomIds ids;
  PassedKeys passed;
  while (const std::optional<Line> line = lines.Next()) {
    if (line->blank) continue;
    if (!input.Wants(*line)) {
      if (checks_ids) AddId(CustomIdOf(*line), line->number, input, ids);
      continue;
    }
    ++scan.num_lines;
    scan.line_hashes.push_back(line->Hash());
    const ParsedLine parsed = input.Parse(*line);
    if (checks_ids) AddId(parsed.notes.custom_id, line->number, input, ids);
    passed.Add(line->number, parsed.notes.passed_over);
    if (const auto* request = std::get_if<Request>(&parsed.item)) {
      Count(*request, scan, sample);
    } else {
      Count(std::get<LineError>(parsed.item), scan);
    }
  }
  scan.num_blank_lines = lines.num_blank_lines();
  scan.num_bytes = lines.num_bytes();
  scan.hash = lines.hash();
  scan.passed_keys = passed.keys();
  return scan;
}

}  // namespace spillway
