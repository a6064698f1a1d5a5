#include "src/report/eta.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

// Decode passes after which their pace stands for those to come.
constexpr int64_t kSteadyPasses = 3;

// Share of the foreseen time for which a phase's own pace is taken to be that of the whole run.
constexpr double kPriorFrac = 0.01;

double PerUnit(double amount, double units) { return units > 0.0 ? amount / units : 0.0; }

}  // namespace

ExpectedWork ExpectedOf(const Workload& work, const std::optional<Prediction>& predicted) {
  ExpectedWork expected;
  expected.rows = work.num_requests;
  for (const RequestShape& request : work.sample) {
    expected.prompt_tokens += static_cast<double>(request.prompt_tokens);
    expected.decode_tokens += static_cast<double>(std::max<int64_t>(0, request.max_new_tokens - 1));
  }
  expected.prompt_tokens *= work.rows_per_sampled();
  expected.decode_tokens *= work.rows_per_sampled();
  if (predicted) expected.course = predicted->course;
  return expected;
}

Eta::Eta(ExpectedWork expected) : expected_(std::move(expected)) {
  if (expected_.course.empty()) return;
  const CoursePoint& end = expected_.course.back();
  per_token_ = {PerUnit(end.prefill_s, end.prompt_tokens),
                PerUnit(end.decode_s, end.decode_tokens)};
  for (const CoursePoint& point : expected_.course)
    work_.push_back(WorkOf(point.prompt_tokens, point.decode_tokens));
}

void Eta::See(const WorkDone& done, double elapsed_s) {
  const PassDone& pass = done.pass;
  const double since_s = elapsed_s - std::exchange(elapsed_s_, elapsed_s);
  const bool begins = pass.cells <= done_.pass.cells;
  pass_s_ = since_s + (begins ? 0.0 : pass_s_);
  (pass.prefills() ? measured_.prefill : measured_.decode) += since_s;
  if (!pass.prefills() && pass.cells == pass.num_cells) {
    ++decode_passes_;
    decode_passes_s_ += pass_s_;
  }
  done_ = done;
}

// Seconds that so many tokens take on the average of the course.
double Eta::WorkOf(double prompt_tokens, double decode_tokens) const {
  return prompt_tokens * per_token_.prefill + decode_tokens * per_token_.decode;
}

// What the cost model foresaw for what is done.
Eta::PhaseSeconds Eta::OnCourse() const {
  const double work = WorkOf(done_.PromptTokens(), done_.DecodeTokens());
  const auto after = std::ranges::upper_bound(work_, work);
  const auto at = static_cast<std::size_t>(after - work_.begin());
  if (after == work_.end())
    return {expected_.course.back().prefill_s, expected_.course.back().decode_s};
  const CoursePoint from = at == 0 ? CoursePoint{} : expected_.course[at - 1];
  const CoursePoint& to = expected_.course[at];
  const double begin = at == 0 ? 0.0 : work_[at - 1];
  const double frac = PerUnit(work - begin, *after - begin);
  return {from.prefill_s + frac * (to.prefill_s - from.prefill_s),
          from.decode_s + frac * (to.decode_s - from.decode_s)};
}

// Measured over foreseen seconds of each phase.
Eta::PhaseSeconds Eta::Pace(const PhaseSeconds& foreseen) const {
  const CoursePoint& end = expected_.course.back();
  const double prior_s = kPriorFrac * (end.prefill_s + end.decode_s);
  const auto pace = [prior_s](double measured_s, double foreseen_s, double prior) {
    return (measured_s + prior * prior_s) / (foreseen_s + prior_s);
  };
  const double whole = pace(elapsed_s_, foreseen.total(), 1.0);
  return {pace(measured_.prefill, foreseen.prefill, whole),
          pace(measured_.decode, foreseen.decode, whole)};
}

std::optional<double> Eta::LeftSeconds() const {
  if (expected_.course.empty()) return LeftByTokens();
  const CoursePoint& end = expected_.course.back();
  const PhaseSeconds foreseen = OnCourse();
  const PhaseSeconds pace = Pace(foreseen);
  return pace.prefill * (end.prefill_s - foreseen.prefill) +
         pace.decode * (end.decode_s - foreseen.decode);
}

std::optional<double> Eta::LeftByTokens() const {
  const double prompt_left = expected_.prompt_tokens - done_.PromptTokens();
  const double decode_left = expected_.decode_tokens - done_.DecodeTokens();
  const bool steady = expected_.decode_tokens == 0.0 || decode_passes_ >= kSteadyPasses;
  if (!steady || done_.PromptTokens() == 0.0) return std::nullopt;
  return std::max(0.0, prompt_left) * PerUnit(measured_.prefill, done_.PromptTokens()) +
         std::max(0.0, decode_left) * PerUnit(measured_.decode, done_.DecodeTokens());
}

std::optional<double> Eta::SecondsToRowEnd() const {
  const PassDone& pass = done_.pass;
  if (pass.to_row_end == 0 || pass.cells == 0) return std::nullopt;
  const double rest_s = pass_s_ * (1.0 - pass.share()) / pass.share();
  const auto passes = static_cast<double>(pass.to_row_end - 1);
  if (passes == 0.0) return rest_s;
  const std::optional<double> each_s = DecodePassSeconds();
  if (!each_s) return std::nullopt;
  return rest_s + passes * *each_s;
}

std::optional<double> Eta::DecodePassSeconds() const {
  if (decode_passes_ > 0) return decode_passes_s_ / static_cast<double>(decode_passes_);
  if (expected_.course.empty()) return std::nullopt;
  const double foreseen_s = WorkOf(0.0, static_cast<double>(done_.rows_running));
  return foreseen_s * Pace(OnCourse()).decode;
}

}  // namespace spillway
