#include "src/verbs/shadow_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "spillway/error.h"
#include "src/base/clock.h"
#include "src/base/stop_signal.h"
#include "src/gpu/gpu_needs.h"
#include "src/report/eta.h"
#include "src/requests/score_request.h"
#include "src/verbs/policy_for.h"
#include "src/verbs/prediction_for.h"  // OverlapOf
#include "src/verbs/prompt_file.h"     // BeginningsOf, WorkloadOf

namespace spillway {
namespace {

constexpr int64_t kLikeliest = 20;  // tokens of a step that are compared

// The flags, with the full cache of 16 bits.
Config WithFullKv(const Config& config) {
  Config full = config;
  full.kv = {};
  full.kv_bits = 16;
  full.policy.reset();
  full.percent.reset();
  full.gpu_batch_size.reset();
  full.num_gpu_batches.reset();
  full.prefill_chunk.reset();
  return full;
}

Plan FullPlan(const Setting& setting, const Workload& work) {
  try {
    const Policy policy =
        PolicyFor(WithFullKv(setting.config), setting.model, setting.machine, work, setting.needs);
    Plan plan = MakePlan(setting.model, setting.machine, work, policy, setting.needs);
    RefuseWhatGpuLacks(plan);
    return plan;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("--shadow, with the full KV cache: {}", error.what()));
  }
}

// Throws: Error kInterrupted.
std::vector<Request> SampleOf(RequestReader& reader, int64_t num_requests, int64_t num_rows) {
  std::vector<Request> sample;
  for (int64_t seen = 0; std::ssize(sample) < num_rows;) {
    std::optional<RequestOrError> line = reader.Next();
    if (!line) break;  // the input changed; the run itself finds that out
    ThrowIfStopRequested();
    auto* request = std::get_if<Request>(&*line);
    if (request == nullptr) continue;
    const auto taken = static_cast<__int128>(++seen) * num_rows / num_requests;
    if (taken > std::ssize(sample)) sample.push_back(std::move(*request));
  }
  return sample;
}

// Leaves out every other row until the answers are within kMostTokens.
void Thin(std::vector<Request>& rows) {
  const auto tokens = [&] {
    int64_t sum = 0;
    for (const Request& row : rows) sum += row.sampling.max_tokens;
    return sum;
  };
  while (rows.size() > 1 && tokens() > ShadowRows::kMostTokens) {
    std::size_t kept = 0;
    for (std::size_t at = 0; at < rows.size(); at += 2) std::swap(rows[kept++], rows[at]);
    rows.resize(kept);
  }
}

}  // namespace

// The rows one after the other, as requests that a derived job makes of them.
class ShadowRows::RowsJob : public Job {
 public:
  explicit RowsJob(ShadowRows& shadow) : shadow_(shadow) {}

  void Fail(const Request&, const std::string&, const std::string&) override {}

 protected:
  // nullptr: there are no more.
  Row* NextRow() { return next_ < shadow_.rows_.size() ? &shadow_.rows_[next_++] : nullptr; }
  Row& RowOf(const Request& request) {
    return shadow_.rows_[shadow_.index_of_line_.at(request.line)];
  }

 private:
  ShadowRows& shadow_;
  std::size_t next_ = 0;
};

class ShadowRows::FullJob final : public RowsJob {
 public:
  using RowsJob::RowsJob;

  std::optional<Request> Next() override {
    const Row* row = NextRow();
    if (row == nullptr) return std::nullopt;
    Request request = row->request;
    request.sampling.num_logprobs = kLikeliest;
    return request;
  }
  void Finish(const Request& request, const Completion& completion) override {
    Row& row = RowOf(request);
    row.answer = completion.tokens;
    row.steps = completion.logprobs;
  }
};

class ShadowRows::OwnJob final : public RowsJob {
 public:
  using RowsJob::RowsJob;

  std::optional<Request> Next() override {
    const Row* row = NextRow();
    while (row != nullptr && row->answer.empty()) row = NextRow();
    if (row == nullptr) return std::nullopt;
    KnownTokens text;
    text.tokens = row->request.prompt;
    text.first = std::ssize(text.tokens);
    text.tokens.insert(text.tokens.end(), row->answer.begin(), row->answer.end());
    Request request = ScoreRequest(std::move(text), {.tokens = std::ssize(row->request.prompt)});
    request.line = row->request.line;
    // Budgets count what a row may come to, not what it came to.
    request.sampling.max_tokens = row->request.sampling.max_tokens;
    request.sampling.num_logprobs = kLikeliest;
    return request;
  }
  void Finish(const Request& request, const Completion& completion) override {
    Row& row = RowOf(request);
    row.quality = CompareSteps(std::exchange(row.steps, {}), completion.logprobs);
  }
};

ShadowRows::ShadowRows(const Setting& setting, RequestReader& reader, int64_t num_requests,
                       double share) {
  const auto wanted = static_cast<int64_t>(std::ceil(share * static_cast<double>(num_requests)));
  const int64_t num_rows = std::clamp<int64_t>(wanted, 1, std::min(num_requests, kMostRows));
  std::vector<Request> sample = SampleOf(reader, num_requests, num_rows);
  Thin(sample);
  for (Request& request : sample) {
    index_of_line_.emplace(request.line, rows_.size());
    rows_.push_back({std::move(request), {}, {}, {}});
  }
  full_ = FullPlan(setting, Work());
}

Workload ShadowRows::Work() const {
  InputScan scan;
  scan.num_requests = num_rows();
  for (const Row& row : rows_) {
    scan.sample.push_back(ShapeOf(row.request));
    scan.TakeLongest(scan.sample.back());
  }
  return WorkloadOf(scan);
}

void ShadowRows::RunFull(const Setting& setting, ProgressLine& line) {
  const double begin_s = NowSeconds();
  const Config& config = setting.config;
  FullJob job(*this);
  RunJob({setting.model, full_, setting.device, OffloadFolder(config), config.seed,
          ExpectedOf(Work(), std::nullopt), nullptr, BeginningsOf(config)},
         MakeSchedule(full_, OverlapOf(config)), job, line);
  seconds_ += NowSeconds() - begin_s;
}

void ShadowRows::RunOwn(const Plan& plan, Overlap overlap, Supervisor& supervisor,
                        ProgressLine& line) {
  const double begin_s = NowSeconds();
  Plan of_rows = plan;
  of_rows.num_requests = num_rows();  // its places are the run's
  OwnJob job(*this);
  line.Begin(ExpectedOf(Work(), std::nullopt));
  supervisor.Run(of_rows, MakeSchedule(of_rows, overlap), job,
                 [&](const WorkDone& done) { line.Update(done); });
  seconds_ += NowSeconds() - begin_s;
}

void ShadowRows::NoteAnswer(const Request& request, const Completion& completion) {
  const auto found = index_of_line_.find(request.line);
  if (found == index_of_line_.end()) return;
  Row& row = rows_[found->second];
  if (row.answer.empty()) return;
  row.quality.lengths = {std::ssize(row.answer), std::ssize(completion.tokens)};
}

std::optional<QualityReceipt> ShadowRows::Receipt() const {
  std::vector<RowQuality> rows;  // in the input's order, whatever the order that they ended in
  for (const Row& row : rows_) rows.push_back(row.quality);
  std::optional<QualityReceipt> receipt = ReceiptOf(rows);
  if (receipt) receipt->seconds = seconds_;
  return receipt;
}

bool DiffersFromFullKv(const Policy& policy) {
  return policy.kv.evicts() || policy.kv_bits.coded();
}

}  // namespace spillway
