#include "src/profile/measurement.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace spillway {
namespace {

constexpr double kGiga = 1e9;

std::string_view NameOf(RateUnit unit) {
  switch (unit) {
    case RateUnit::kBytes:
      return "GB/s";
    case RateUnit::kOperations:
      return "GFLOP/s";
    case RateUnit::kElements:
      return "G/s";
    case RateUnit::kCalls:
      break;
  }
  return "us";
}

}  // namespace

double RoundedRate(double rate) {
  const double unit = std::pow(10.0, std::floor(std::log10(rate)) - 3.0);
  return std::round(rate / unit) * unit;
}

MeasuredRate Conclude(Measurement& measurement) {
  std::vector<double>& rounds = measurement.rounds;
  std::ranges::sort(rounds);
  const double best = rounds.back();
  const double median = rounds[rounds.size() / 2];
  *measurement.rate = RoundedRate(median);
  MeasuredRate line;
  line.name = measurement.name;
  line.spread = best / median - 1.0;
  line.steady = measurement.steady;
  line.value = measurement.unit == RateUnit::kCalls ? 1e6 / median : median / kGiga;
  line.unit = NameOf(measurement.unit);
  return line;
}

}  // namespace spillway
