// RecentRate: how fast an amount grew in the last minute. Thread rule: one thread.
#pragma once

#include <deque>

namespace spillway {

class RecentRate {
 public:
  // The amount so far. Requires: the time does not go back.
  void See(double amount, double now_s);

  // Growth a second, since the first time where that is less than a minute ago; 0 where no time has
  // passed.
  double PerSecond() const;

 private:
  struct Sample {
    double amount;
    double at_s;
  };
  std::deque<Sample> samples_;  // a second apart, but for the last
};

}  // namespace spillway
