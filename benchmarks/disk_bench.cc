// GB/s of DiskQueue against a plain loop of pread with O_DIRECT on the same file, in turns, and of
// the block checksum: disk_bench [FOLDER] [MiB]. One line a measurement, with the share of the
// loop.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "src/base/hash.h"
#include "src/io/disk_queue.h"

namespace spillway {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int kRounds = 3;

double Seconds(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double CpuSeconds(const std::function<void()>& action) {
  const auto now = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  action();
  return now() - begin;
}

struct Bench {
  explicit Bench(const DiskFolder& folder, int64_t bytes)
      : file(DiskFile::CreateScratch(folder, bytes)),
        memory(static_cast<std::byte*>(std::aligned_alloc(2 * kMiB, 64 * kMiB)), std::free) {
    std::fill_n(memory.get(), 64 * kMiB, std::byte{1});
    for (int64_t at = 0; at < bytes; at += 4 * kMiB) file.WriteAt(at, Slot(0, 4 * kMiB));
    file.Sync();
  }
  std::span<std::byte> Slot(int64_t index, int64_t bytes) const {
    return {memory.get() + index * bytes % (64 * kMiB), static_cast<std::size_t>(bytes)};
  }

  DiskFile file;
  std::unique_ptr<std::byte, void (*)(void*)> memory;
};

// Into as many slots in turn as the queue uses: memory that is still in a cache takes data faster.
void ReadInLoop(const Bench& bench, int64_t request_bytes, int depth) {
  for (int64_t at = 0; at < bench.file.size(); at += request_bytes) {
    const std::span<std::byte> slot = bench.Slot(at / request_bytes % depth, request_bytes);
    const ssize_t count = ::pread(bench.file.fd(), slot.data(), slot.size(), at);
    SPILLWAY_CHECK(count == request_bytes);
  }
}

// Reads as the executor does: one ticket a request, `depth` of them under way. Returns the sum of
// the checksums of what came, or 0 where they are not asked for.
uint64_t ReadThroughQueue(const Bench& bench, DiskQueue& queue, int64_t request_bytes, int depth,
                          bool verify = false) {
  uint64_t sum = 0;
  std::vector<DiskTicket> tickets(static_cast<std::size_t>(depth));
  const int64_t num_requests = bench.file.size() / request_bytes;
  for (int64_t turn = 0; turn < num_requests + depth; ++turn) {
    const std::span<std::byte> slot = bench.Slot(turn % depth, request_bytes);
    DiskTicket& ticket = tickets[static_cast<std::size_t>(turn % depth)];
    queue.Wait(ticket);
    if (verify && turn >= depth) sum += BlockHash(slot);
    if (turn >= num_requests) continue;
    const DiskRequest request = {DiskOp::kRead, &bench.file, turn * request_bytes, slot};
    ticket = queue.Submit({&request, 1});
  }
  return sum;
}

void Compare(const Bench& bench, DiskBackendKind kind, int64_t request_bytes, int depth) {
  DiskBackendOptions options;
  options.kind = kind;
  options.depth = depth;
  options.num_threads = depth;
  options.buffers = {{bench.memory.get(), 64 * kMiB}};
  DiskQueue queue(MakeDiskBackend(options));
  double loop_s = 1e9;
  double queue_s = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    loop_s = std::min(loop_s, Seconds([&] { ReadInLoop(bench, request_bytes, depth); }));
    queue_s =
        std::min(queue_s, Seconds([&] { ReadThroughQueue(bench, queue, request_bytes, depth); }));
  }
  const double gb = static_cast<double>(bench.file.size()) / 1e9;
  fmt::print("{:<9} {} MiB  depth {:>2}  {:5.2f} GB/s  pread loop {:5.2f} GB/s  {:4.0f} %  {}\n",
             queue.backend().name(), request_bytes / kMiB, depth, gb / queue_s, gb / loop_s,
             100.0 * loop_s / queue_s, queue.backend().note());
}

void MeasureHash(const Bench& bench, int64_t block_bytes) {
  uint64_t sum = 0;
  double best_s = 1e9;
  for (int round = 0; round < 5; ++round) {
    best_s = std::min(best_s, CpuSeconds([&] {
                        for (int64_t at = 0; at < 64 * kMiB; at += block_bytes) {
                          sum += BlockHash(bench.Slot(at / block_bytes, block_bytes), sum | 1);
                        }
                      }));
  }
  fmt::print("checksum  {:>4} KiB blocks  {:5.1f} GB/s of one core's time\n", block_bytes / 1024,
             64.0 * kMiB / 1e9 / best_s);
}

// Cost of checking every block where one thread waits for blocks and checks them.
void MeasureVerification(const Bench& bench) {
  constexpr int64_t kRequestBytes = 2 * kMiB;
  constexpr int kDepth = 4;
  DiskBackendOptions options;
  options.depth = kDepth;
  options.buffers = {{bench.memory.get(), 64 * kMiB}};
  DiskQueue queue(MakeDiskBackend(options));
  double plain_s = 1e9;
  double verified_s = 1e9;
  uint64_t sum = 0;
  for (int round = 0; round < 2 * kRounds; ++round) {
    plain_s = std::min(
        plain_s, Seconds([&] { sum += ReadThroughQueue(bench, queue, kRequestBytes, kDepth); }));
    verified_s = std::min(verified_s, Seconds([&] {
                            sum += ReadThroughQueue(bench, queue, kRequestBytes, kDepth, true);
                          }));
  }
  const double gb = static_cast<double>(bench.file.size()) / 1e9;
  fmt::print(
      "verified  2 MiB  depth  4  {:5.2f} GB/s  unverified  {:5.2f} GB/s  {:4.0f} %  ({:x})\n",
      gb / verified_s, gb / plain_s, 100.0 * plain_s / verified_s, sum & 0xF);
}

int Run(const std::string& folder, int64_t bytes) {
  const Bench bench(DiskFolder(folder, FolderTrust::kAsGiven), bytes);
  if (!bench.file.direct()) fmt::print("not O_DIRECT: {}\n", bench.file.buffered_reason());
  for (const int64_t block_bytes : {64 * kMiB / 1024, 2 * kMiB}) MeasureHash(bench, block_bytes);
  MeasureVerification(bench);
  for (const DiskBackendKind kind : {DiskBackendKind::kAuto, DiskBackendKind::kThreads}) {
    for (const int64_t request_bytes : {kMiB, 2 * kMiB, 4 * kMiB}) {
      for (const int depth : {1, 2, 4, 8, 16}) Compare(bench, kind, request_bytes, depth);
    }
  }
  return 0;
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  try {
    const int64_t mib = argc > 2 ? std::atoll(argv[2]) : 512;
    return spillway::Run(argc > 1 ? argv[1] : "/tmp", mib * spillway::kMiB);
  } catch (const std::exception& error) {
    fmt::print(stderr, "disk_bench: {}\n", error.what());
    return 1;
  }
}
