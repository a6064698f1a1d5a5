#include "benchmarks/kernels/bench.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>

#include "kernels/convert/quantise.h"
#include "kernels/rows/random_fill.h"
#include "spillway/round.h"

namespace spillway::kernels {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Bytes Allocate(int64_t size) {
  constexpr size_t kAlign = 1 << 21;
  const size_t rounded = (static_cast<size_t>(size) + kAlign - 1) / kAlign * kAlign;
  void* data = std::aligned_alloc(kAlign, rounded);
  static_cast<void>(::madvise(data, rounded, MADV_HUGEPAGE));
  std::memset(data, 0, static_cast<size_t>(size));
  return Bytes(static_cast<std::byte*>(data), &std::free);
}

Bytes RandomBytes(int64_t count, DType dtype) {
  Bytes bytes = Allocate(count * DTypeBytes(dtype));
  FillUniform({bytes.get(), static_cast<size_t>(count * DTypeBytes(dtype))}, dtype, 7, 0, 0.05F);
  return bytes;
}

Bytes QuantisedBytes(int64_t rows, int64_t cols, DType dtype) {
  const int64_t row_bytes = RowBytes(dtype, cols);
  Bytes bytes = Allocate(rows * row_bytes);
  std::vector<uint16_t> halfs(static_cast<size_t>(cols));
  FillUniform(std::as_writable_bytes(std::span(halfs)), DType::kF16, 7, 0, 0.05F);
  for (int64_t row = 0; row < rows; ++row) {
    QuantiseRow(halfs, dtype, {bytes.get() + row * row_bytes, static_cast<size_t>(row_bytes)});
  }
  return bytes;
}

double SecondsOf(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string NameWithBits(std::string_view name, KvBits kv_bits) {
  if (!kv_bits.coded()) return std::string(name);
  if (kv_bits.key == kv_bits.value) return fmt::format("{} {}b", name, kv_bits.key);
  return fmt::format("{} {},{}b", name, kv_bits.key, kv_bits.value);
}

Bench::Bench(const Options& options) : options_(options), pool_(options.num_threads) {
  const Bytes memory = RandomBytes(kFarBytes / 2, DType::kF16);
  int64_t begin = 0;
  const double seconds = BestSeconds([&] {
    ReadMemory(memory.get() + begin);
    begin = (begin + kReadBytes) % kFarBytes;
  });
  read_bytes_per_s_ = static_cast<double>(kReadBytes) / seconds;
  fmt::print("isa {}, {} threads, memory read {:.1f} GB/s\n", IsaName(options.isa),
             options.num_threads, read_bytes_per_s_ / 1e9);
  fmt::print("{:<12} {:<22} {:>6} {:>10} {:>9} {:>8} {:>10} {:>9}\n", "op", "shape", "rows", "us",
             "GB/s", "% read", "GFLOP/s", "x torch");
}

double Bench::BestSeconds(const std::function<void()>& work) const {
  const double budget_s = options_.quick ? 0.1 : 1.0;
  SecondsOf(work);
  double best = SecondsOf(work);
  const auto end = Clock::now() + std::chrono::duration<double>(budget_s);
  for (int call = 0; call < 3 || Clock::now() < end; ++call) best = std::min(best, SecondsOf(work));
  return best;
}

std::vector<double> Bench::MedianRatios(const std::vector<std::function<void()>>& works) const {
  const int num_turns = options_.quick ? 101 : 301;
  std::vector<std::vector<double>> ratios(works.size());
  for (const auto& work : works) work();
  for (int turn = 0; turn < num_turns; ++turn) {
    const double first_s = SecondsOf(works[0]);
    for (size_t i = 0; i < works.size(); ++i)
      ratios[i].push_back((i == 0 ? first_s : SecondsOf(works[i])) / first_s);
  }
  std::vector<double> medians;
  for (auto& of_one : ratios) {
    std::ranges::sort(of_one);
    medians.push_back(of_one[of_one.size() / 2]);
  }
  return medians;
}

// Reads one word of each cache line, in four streams a thread, so that only the memory limits it.
void Bench::ReadMemory(const std::byte* data) {
  constexpr int64_t kChunk = 1 << 20;
  constexpr int64_t kStream = kChunk / 4;
  std::atomic<uint64_t> total{0};  // keeps the loads alive
  auto task = [&](int64_t chunk, int /*worker*/) {
    const std::byte* from = data + chunk * kChunk;
    uint64_t sum = 0;
    for (int64_t at = 0; at < kStream; at += 64) {
      for (int64_t stream = 0; stream < 4; ++stream) {
        sum += std::to_integer<uint64_t>(from[stream * kStream + at]);
      }
    }
    total += sum;
  };
  pool_.Run(kReadBytes / kChunk, task);
}

void Bench::Print(const Result& result) const {
  const double bytes_per_s = result.bytes / result.seconds;
  fmt::print("{:<12} {:<22} {:>6} {:>10.1f} {:>9.1f} {:>8.0f} {:>10.1f} {:>9}\n", result.op,
             result.shape, result.rows, result.seconds * 1e6, bytes_per_s / 1e9,
             100 * bytes_per_s / read_bytes_per_s_, result.flops / result.seconds / 1e9,
             result.torch_s > 0 ? fmt::format("{:.2f}", result.torch_s / result.seconds) : "");
  std::fflush(stdout);
}

void MemoryRead::Run() {
  for (int64_t done = 0; done < bytes_; done += Bench::kReadBytes) {
    bench_.ReadMemory(far_bytes_ + at_);
    at_ = (at_ + Bench::kReadBytes) % (kFarBytes - Bench::kReadBytes);
  }
}

double MemoryRead::WantedFrac() const {
  return static_cast<double>(bytes_) / static_cast<double>(RoundUp(bytes_, Bench::kReadBytes));
}

}  // namespace spillway::kernels
