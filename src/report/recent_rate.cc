#include "src/report/recent_rate.h"

namespace spillway {
namespace {

constexpr double kWindowSeconds = 60.0;
constexpr double kStepSeconds = 1.0;

}  // namespace

void RecentRate::See(double amount, double now_s) {
  const std::size_t size = samples_.size();
  if (size >= 2 && now_s - samples_[size - 2].at_s < kStepSeconds) {
    samples_.back() = {amount, now_s};
  } else {
    samples_.push_back({amount, now_s});
  }
  while (samples_.size() > 2 && now_s - samples_[1].at_s >= kWindowSeconds) samples_.pop_front();
}

double RecentRate::PerSecond() const {
  if (samples_.size() < 2) return 0.0;
  const double seconds = samples_.back().at_s - samples_.front().at_s;
  return seconds > 0.0 ? (samples_.back().amount - samples_.front().amount) / seconds : 0.0;
}

}  // namespace spillway
