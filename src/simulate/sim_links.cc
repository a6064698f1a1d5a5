#include "src/simulate/sim_links.h"

#include <algorithm>
#include <limits>

#include "spillway/error.h"

namespace spillway {
namespace {

// Less than a clock could tell: rounding of sums, not time.
constexpr double kNothing = 1e-12;
constexpr double kForever = std::numeric_limits<double>::infinity();

bool IsEmpty(const PerLink<double>& seconds) {
  return std::ranges::all_of(seconds.values, [](double s) { return s <= 0.0; });
}

}  // namespace

uint64_t SimLinks::Add(StreamKind stream, SimTransfer transfer) {
  Lane& lane = LaneOf(stream);
  if (IsEmpty(transfer.seconds)) return lane.added;
  lane.queue.push_back(transfer);
  return ++lane.added;
}

// A finished head makes way for the next, which another lane's head may have waited for.
void SimLinks::BeginHeads() {
  for (bool changed = true; changed;) {
    changed = false;
    for (Lane& lane : lanes_) {
      if (lane.active && IsEmpty(lane.left_s)) {
        lane.queue.pop_front();
        lane.active = false;
        ++lane.done;
        changed = true;
      }
      if (lane.active || lane.queue.empty()) continue;
      if (lane.queue.front().after > LaneOf(StreamKind::kOut).done) continue;
      lane.active = true;
      lane.left_s = lane.queue.front().seconds;
      lane.begin_s = now_s_;
      changed = true;
    }
  }
}

void SimLinks::FinishLink(Lane& lane, Link link) {
  lane.left_s[link] = 0.0;
  const SimTransfer& transfer = lane.queue.front();
  totals_[link].bytes += transfer.bytes[link];
  if (!sink_) return;
  sink_(TraceSpan{spillway::LaneOf(link), transfer.label, lane.begin_s, now_s_,
                  transfer.bytes[link]});
}

PerLink<int> SimLinks::Users() const {
  PerLink<int> users;
  for (const Lane& lane : lanes_) {
    if (!lane.active) continue;
    for (const Link link : kAllLinks) users[link] += lane.left_s[link] > 0.0 ? 1 : 0;
  }
  return users;
}

double SimLinks::ComputePace(const PerLink<int>& users) const {
  double pace = 1.0;
  for (const Link link : kAllLinks) {
    if (users[link] > 0) pace *= beside_compute_[link].compute_frac;
  }
  return pace;
}

PerLink<double> SimLinks::Stretch(const PerLink<int>& users, bool computing) const {
  PerLink<double> stretch;
  for (const Link link : kAllLinks) {
    stretch[link] = users[link] / (computing ? beside_compute_[link].link_frac : 1.0);
  }
  if (users[Link::kDiskRead] > 0 && users[Link::kDiskWrite] > 0) {
    for (const Link link : {Link::kDiskRead, Link::kDiskWrite}) stretch[link] /= disk_both_frac_;
  }
  return stretch;
}

double SimLinks::Step(double limit_s, bool computing) {
  const PerLink<int> users = Users();
  const PerLink<double> stretch = Stretch(users, computing);
  double step_s = kForever;
  for (const Lane& lane : lanes_) {
    if (!lane.active) continue;
    for (const Link link : kAllLinks) {
      if (lane.left_s[link] > 0.0) step_s = std::min(step_s, lane.left_s[link] * stretch[link]);
    }
  }
  if (step_s == kForever) return kForever;
  step_s = std::min(step_s, limit_s);
  now_s_ += step_s;
  for (const Link link : kAllLinks) {
    if (users[link] > 0) totals_[link].busy_s += step_s;
  }
  for (Lane& lane : lanes_) {
    if (!lane.active) continue;
    for (const Link link : kAllLinks) {
      if (lane.left_s[link] <= 0.0) continue;
      lane.left_s[link] -= step_s / stretch[link];
      if (lane.left_s[link] <= kNothing) FinishLink(lane, link);
    }
  }
  return step_s;
}

void SimLinks::Compute(double seconds) {
  while (seconds > kNothing) {
    BeginHeads();
    const double pace = ComputePace(Users());
    const double passed_s = Step(seconds / pace, true);
    if (passed_s == kForever) {  // no transfer to go beside
      now_s_ += seconds;
      return;
    }
    seconds -= passed_s * pace;
  }
}

void SimLinks::WaitFor(StreamKind stream, uint64_t number) {
  const Lane& lane = LaneOf(stream);
  BeginHeads();
  while (lane.done < number) {
    SPILLWAY_CHECK(Step(kForever, false) < kForever);
    BeginHeads();
  }
}

void SimLinks::WaitForAll() {
  for (const StreamKind stream : {StreamKind::kWeightsIn, StreamKind::kRowsIn, StreamKind::kOut}) {
    WaitFor(stream, LaneOf(stream).added);
  }
}

}  // namespace spillway
