// CpuProbe: the work whose rate on this processor `profile` measures, one call at a time, with the
// engine's own kernels on memory that no cache holds. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"
#include "kernels/thread_pool.h"
#include "src/memory/arena.h"

namespace spillway {

class CpuProbe {
 public:
  // Takes Bytes() of memory and fills it. Lifetime: the pool outlives the probe.
  // Throws: Error kCpuMemory, kSystemLimit.
  CpuProbe(ThreadPool& pool, kernels::Isa isa);

  static int64_t Bytes(int num_threads, kernels::Isa isa);

  // Each does its work once and returns how much it was.
  int64_t ReadMemory();            // bytes, by all threads
  int64_t Multiply(int64_t rows);  // operations of fp16 weights with this many rows <= kMaxRows
  int64_t AttendPrefill();         // operations: 4 * head_dim of each pair that is attended to
  int64_t AttendDecode();          // bytes of K and V
  int64_t Launch();                // layers of hardly any arithmetic
  int64_t CopyToDevice();          // bytes, by one thread, as the copiers of an emulated GPU do
  int64_t CopyFromDevice();

  static constexpr int64_t kMaxRows = 512;

 private:
  std::byte* NextFar(int64_t bytes);
  std::byte* DevicePlace() const;
  void MultiplyBy(const std::byte* weights, int64_t rows, int64_t size);
  void Attend(std::byte* kv, int64_t num_rows, int64_t num_past, int64_t num_new);

  ThreadPool& pool_;
  kernels::Isa isa_;
  HostArena far_;     // weights, K and V, a host's memory: read in turn, so that it is never cached
  HostArena device_;  // of an emulated GPU
  HostArena work_;    // what the kernels take in and give out
  int64_t next_far_ = 0;
};

}  // namespace spillway
