// Bench: common parts of the benchmarks of all kernels: the options, the threads, the rate at which
// all threads read memory (measured once, the limit beside every result), timing, and the table
// that is printed. Thread rule: one thread; the work that it times uses the pool.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/dtype.h"
#include "spillway/kv_block.h"
#include "src/base/isa.h"
#include "src/base/thread_pool.h"

namespace spillway::kernels {

// Memory that is read in turn, larger than any cache.
inline constexpr int64_t kFarBytes = int64_t{1} << 30;

struct Options {
  bool quick = false;
  bool torch = true;  // compare with libtorch, where it is linked
  Isa isa = BestIsa();
  int num_threads = NumPhysicalCores();
};

using Bytes = std::unique_ptr<std::byte[], decltype(&std::free)>;

// Zeroed memory on large pages, as the engine's arenas ask for.
Bytes Allocate(int64_t size);
// `count` random elements. Not for quantised types.
Bytes RandomBytes(int64_t count, DType dtype);
// Random rows [rows, cols] in the groups of a quantised type.
Bytes QuantisedBytes(int64_t rows, int64_t cols, DType dtype);

// Seconds of one call.
double SecondsOf(const std::function<void()>& work);

// Bits of K and V that are measured.
inline constexpr KvBits kBenchedBits[] = {16, 8, {8, 4}, 4};

// "decode" at 16 bits, "decode 4b" or "decode 8,4b" below.
std::string NameWithBits(std::string_view name, KvBits kv_bits);

// One line of the table.
struct Result {
  std::string op;
  std::string shape;
  int64_t rows = 1;
  double seconds = 0;  // per call
  double bytes = 0;    // read (and written) per call
  double flops = 0;    // per call; 0: not counted
  double torch_s = 0;  // libtorch's seconds for the same; 0: not compared
};

class Bench {
 public:
  // Measures the memory's read rate and prints the head of the table.
  explicit Bench(const Options& options);

  const Options& options() const { return options_; }
  ThreadPool& pool() { return pool_; }

  // The fastest of many calls: the one that other programs on the machine disturbed least.
  double BestSeconds(const std::function<void()>& work) const;
  // Ratios on a machine whose rates change: calls each work in turn, so that all are timed within
  // the same moments. Returns, per work, the median of its seconds over those of works[0] in the
  // same turn.
  std::vector<double> MedianRatios(const std::vector<std::function<void()>>& works) const;
  // Reads kReadBytes from `data` with all threads.
  void ReadMemory(const std::byte* data);
  void Print(const Result& result) const;

  static constexpr int64_t kReadBytes = int64_t{64} << 20;  // by one ReadMemory

 private:
  Options options_;
  ThreadPool pool_;
  double read_bytes_per_s_ = 0;
};

// A work for MedianRatios: reads about `bytes` of memory, another part of kFarBytes in each call.
// Lifetime: `far_bytes` [kFarBytes] and `bench` outlive it.
class MemoryRead {
 public:
  MemoryRead(Bench& bench, const std::byte* far_bytes, int64_t bytes)
      : bench_(bench), far_bytes_(far_bytes), bytes_(bytes) {}

  void Run();
  // The wanted bytes over those that Run reads, which are whole multiples of kReadBytes.
  double WantedFrac() const;

 private:
  Bench& bench_;
  const std::byte* far_bytes_;
  int64_t bytes_;
  int64_t at_ = 0;
};

}  // namespace spillway::kernels
