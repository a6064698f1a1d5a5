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
void BenchCase(Bench& bench, const DecodeCase& of) {
  DecodeCase with_h2o = of;
  with_h2o.kind = KvPolicyKind::kH2o;
  DecodeWork plain(bench, of);
  DecodeWork h2o(bench, with_h2o);
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
      "in turns, {} x {}, KV heads {}, slots {}: plain {:.0f} % of the memory's rate ({:.0f} "
      "GB/s), "
      "h2o {:.0f} %; h2o takes {:.1f} % more time\n",
      of.heads(), of.head_dim, of.kv_heads, of.slots, 100 * plain_frac, memory_bytes_per_s / 1e9,
      100 * plain_frac * more_bytes / ratios[1], 100 * (ratios[1] - 1));
  std::fflush(stdout);
}

}  // namespace

void BenchBookkeeping(Bench& bench) {
  for (const int64_t head_dim : {64, 128})
    for (const int64_t slots : kBudgetSlots)
      BenchCase(bench, {KvPolicyKind::kFull, slots, head_dim, 16});
}

void BenchGrouped(Bench& bench) {
  struct Heads {
    int64_t kv_heads;
    int64_t group;
  };
  // Llama of 8B, Qwen2.5 of 7B and Llama of 70B.
  for (const Heads heads : {Heads{8, 4}, Heads{4, 7}, Heads{8, 8}})
    for (const int64_t head_dim : {64, 128})
      for (const int64_t slots : kBudgetSlots)
        BenchCase(bench, {KvPolicyKind::kFull, slots, head_dim, 16, heads.kv_heads, heads.group});
}

}  // namespace spillway::kernels
