// Measurement: one rate of a machine, measured in rounds. Plain values and pure functions; any
// thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace spillway {

// Unit in which a rate is shown.
enum class RateUnit { kBytes, kOperations, kElements, kCalls };

struct Measurement {
  std::string name;
  RateUnit unit = RateUnit::kBytes;
  bool steady = true;             // as in MeasuredRate
  std::function<double()> round;  // measures once: units per second
  double* rate = nullptr;         // where the median of the rounds goes
  std::vector<double> rounds;
};

// One rate, and how far its rounds lie apart.
struct MeasuredRate {
  std::string name;
  std::string unit;     // "GB/s", "GFLOP/s", "us"
  double value = 0.0;   // in this unit
  double spread = 0.0;  // how much more the best round had, of the median
  bool steady = true;   // on a quiet machine the rounds lie close together; a disk's need not
};

// Rounds to four digits, more than repeat.
double RoundedRate(double rate);

// The median of the rounds is the rate: what a run on this machine gets, where its best moments (a
// disk's cache that answers, a neighbour that pauses) and its worst are both rare. Sets *rate.
// Requires: there are some.
MeasuredRate Conclude(Measurement& measurement);

}  // namespace spillway
