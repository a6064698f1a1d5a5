#include "src/verbs/merged_report.h"

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/json_text.h"
#include "src/base/part_number.h"
#include "src/report/report_figures.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;
using Path = std::filesystem::path;

// Null where there is none, or none that can be read.
Json ReportOf(const Path& path, int64_t index, int64_t count) {
  std::ifstream file(NumberedPart(path, index, count));
  return file.is_open() ? Json::parse(file, nullptr, false) : Json();
}

// Seconds, and the tokens that were generated in them: a shard that was interrupted has those of
// its last run.
struct ShardSums {
  Json times;  // null: of some shard they are not known
  double generated_tokens = 0.0;
};

ShardSums SumsOf(const Path& path, int64_t count) {
  constexpr std::array kParts = {"load", "prefill", "decode", "total"};
  ShardSums sums;
  for (const char* part : kParts) sums.times[part] = 0.0;
  for (int64_t remainder = 0; remainder < count; ++remainder) {
    Json report = ReportOf(path, remainder, count);
    if (remainder == 0 && !report.is_object()) report = ReportOf(path, count, count);
    const Json::json_pointer generated("/workload/generated_tokens");
    const bool counts = report.is_object() && report.contains(generated);
    if (!counts || !report[generated].is_number()) return {};
    sums.generated_tokens += report[generated].get<double>();
    const Json times = report.value("time_s", Json());
    for (const char* part : kParts) {
      if (!times.is_object() || !times.contains(part) || !times[part].is_number()) return {};
      sums.times[part] = sums.times[part].get<double>() + times[part].get<double>();
    }
  }
  return sums;
}

// Tokens a second of machine time.
Json Throughput(const ShardSums& sums) {
  Json rate;
  if (!sums.times.is_null()) {
    const double seconds = sums.times["prefill"].get<double>() + sums.times["decode"].get<double>();
    if (seconds > 0.0) rate = sums.generated_tokens / seconds;
  }
  return {{"generated_tokens_per_s", rate}};
}

}  // namespace

void MergedTotals::Add(const EarlierLine& line) {
  ++(line.is_error ? num_errors : num_answers);
  num_empty += line.is_empty ? 1 : 0;
  prompt_tokens += line.num_prompt_tokens;
  generated_tokens += static_cast<int64_t>(line.tokens.size());
  scores.num_tokens += line.scores.num_tokens;
  scores.logprob_sum += line.scores.logprob_sum;
}

std::string MergedReport(const MergedTotals& totals, int64_t num_shards,
                         const std::string& fingerprint, const Path& path) {
  const ShardSums sums = SumsOf(path, num_shards);
  const bool scored = totals.scores.num_tokens > 0;
  Json report = {{"version", 1},
                 {"num_shards", num_shards},
                 {"workload",
                  {{"num_requests", totals.num_answers},
                   {"prompt_tokens", scored ? Json(nullptr) : Json(totals.prompt_tokens)},
                   {"generated_tokens", totals.generated_tokens},
                   {"num_completions", totals.num_answers},
                   {"num_errors", totals.num_errors},
                   {"num_empty_completions", totals.num_empty}}},
                 {"time_s", sums.times},
                 {"throughput", Throughput(sums)},
                 {"fingerprint", fingerprint}};
  if (scored)
    report["score"] = ScoreTotalsJson({totals.scores.num_tokens, totals.scores.logprob_sum});
  return JsonFileText(report);
}

}  // namespace spillway
