#include "src/verbs/merged_report.h"

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/json_text.h"
#include "src/base/part_number.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;
using Path = std::filesystem::path;

// Null where there is none, or none that can be read.
Json ReportOf(const Path& path, int64_t index, int64_t count) {
  std::ifstream file(NumberedPart(path, index, count));
  return file.is_open() ? Json::parse(file, nullptr, false) : Json();
}

Json SummedTimes(const Path& path, int64_t count) {
  constexpr std::array kParts = {"load", "prefill", "decode", "total"};
  Json sum = Json::object();
  for (const char* part : kParts) sum[part] = 0.0;
  for (int64_t remainder = 0; remainder < count; ++remainder) {
    Json report = ReportOf(path, remainder, count);
    if (remainder == 0 && !report.is_object()) report = ReportOf(path, count, count);
    const Json times = report.is_object() ? report.value("time_s", Json()) : Json();
    for (const char* part : kParts) {
      if (!times.is_object() || !times.contains(part) || !times[part].is_number()) return nullptr;
      sum[part] = sum[part].get<double>() + times[part].get<double>();
    }
  }
  return sum;
}

// Tokens a second of machine time.
Json Throughput(const MergedTotals& totals, const Json& times) {
  if (times.is_null()) return {{"generated_tokens_per_s", nullptr}};
  const double seconds = times["prefill"].get<double>() + times["decode"].get<double>();
  Json rate;
  if (seconds > 0.0) rate = static_cast<double>(totals.generated_tokens) / seconds;
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
  const Json times = SummedTimes(path, num_shards);
  Json report = {{"version", 1},
                 {"num_shards", num_shards},
                 {"workload",
                  {{"num_requests", totals.num_answers},
                   {"prompt_tokens", totals.prompt_tokens},
                   {"generated_tokens", totals.generated_tokens},
                   {"num_completions", totals.num_answers},
                   {"num_errors", totals.num_errors},
                   {"num_empty_completions", totals.num_empty}}},
                 {"time_s", times},
                 {"throughput", Throughput(totals, times)},
                 {"fingerprint", fingerprint}};
  if (totals.scores.num_tokens > 0) {
    report["score"] = {{"num_tokens", totals.scores.num_tokens},
                       {"logprob_sum", totals.scores.logprob_sum}};
  }
  return JsonFileText(report);
}

}  // namespace spillway
