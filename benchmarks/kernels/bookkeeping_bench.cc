#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "benchmarks/kernels/decode_case.h"
#include "benchmarks/kernels/subjects.h"

namespace spillway::kernels {
namespace {

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Measures the cost of keeping scores and finding victims, and both beside the memory, in turns.
void BenchCase(Bench& bench, int64_t slots, int64_t head_dim) {
  DecodeWork plain(bench, {KvPolicyKind::kFull, slots, head_dim, 16});
  DecodeWork h2o(bench, {KvPolicyKind::kH2o, slots, head_dim, 16});
  MemoryRead read(bench, plain.kv(), plain.ReadBytes());
  std::vector<double> read_s;
  const std::vector<double> ratios =
      bench.MedianRatios({[&] { plain.Run(); }, [&] { h2o.Run(); },
                          [&] { read_s.push_back(SecondsOf([&] { read.Run(); })); }});
  const auto plain_bytes = static_cast<double>(plain.ReadBytes());
  const double memory_bytes_per_s = plain_bytes / read.WantedFrac() / Median(read_s);
  const double plain_frac = ratios[2] * read.WantedFrac();
  const double more_bytes = static_cast<double>(h2o.ReadBytes()) / plain_bytes;
  fmt::print(
      "in turns, 32 x {}, slots {}: plain {:.0f} % of the memory's rate ({:.0f} GB/s), "
      "h2o {:.0f} %; h2o takes {:.1f} % more time\n",
      head_dim, slots, 100 * plain_frac, memory_bytes_per_s / 1e9,
      100 * plain_frac * more_bytes / ratios[1], 100 * (ratios[1] - 1));
  std::fflush(stdout);
}

}  // namespace

void BenchBookkeeping(Bench& bench) {
  for (const int64_t head_dim : {64, 128})
    for (const int64_t slots : kBudgetSlots) BenchCase(bench, slots, head_dim);
}

}  // namespace spillway::kernels
