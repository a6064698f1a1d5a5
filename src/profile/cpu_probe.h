// CpuProbe: the work whose rate on this processor `profile` measures, one call at a time, with the
// engine's own kernels on memory that no cache holds. Thread rule: one thread, and one for copies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention.h"
#include "spillway/dtype.h"
#include "src/base/isa.h"
#include "src/base/thread_pool.h"
#include "src/memory/arena.h"

namespace spillway {

class CpuProbe {
 public:
  // Takes Bytes() of memory and fills it. Lifetime: the pool outlives the probe.
  // Throws: Error kCpuMemory, kSystemLimit.
  CpuProbe(ThreadPool& pool, kernels::Isa isa);

  static int64_t Bytes(int num_threads, kernels::Isa isa);

  // Each does its work once and returns how much it was.
  int64_t ReadMemory();  // bytes, by all threads
  // Operations of `width` square weights, with this many rows <= kMaxRows.
  int64_t Multiply(int64_t rows, int64_t width = kHidden, DType weights = DType::kF16);
  // Operations: 4 * head_dim of each pair that is attended to, in kMaxRows tokens of prompts this
  // long. Requires: head_dim divides kHidden, and the length kMaxRows.
  int64_t AttendPrefill(int64_t head_dim, int64_t prompt_tokens);
  int64_t AttendDecode();  // bytes of K and V
  // Attention where tokens are evicted: with their scores and the choice of what stays of the
  // prompt, and over the tokens that are kept.
  int64_t EvictPrefill();  // operations
  int64_t EvictDecode();   // bytes of K and V, without what is kept beside them
  int64_t TouchFirst();    // bytes of memory that is new to this process
  int64_t Normalize();     // elements of states
  int64_t ChooseToken();   // logits, by one thread
  int64_t Launch();        // layers of hardly any arithmetic
  // Bytes, by one thread, as the copiers of an emulated GPU do. From another thread than the rest,
  // so that both can be at work at once.
  int64_t CopyToDevice();
  int64_t CopyFromDevice();

  static constexpr int64_t kMaxRows = 512;
  static constexpr int64_t kHidden = 4096;  // the products and heads of OPT-6.7B

 private:
  std::byte* NextFar(int64_t bytes);
  struct CopyPlaces {
    std::byte* host;
    std::byte* device;
  };
  CopyPlaces NextCopy();
  void MultiplyBy(const std::byte* weights, DType dtype, int64_t rows, int64_t size);
  kernels::AttentionTensors Heads(int64_t head_dim) const;
  std::span<std::byte> Workspace() const;

  ThreadPool& pool_;
  kernels::Isa isa_;
  HostArena far_;     // weights, K and V, a host's memory: read in turn, so that it is never cached
  HostArena device_;  // of an emulated GPU
  HostArena work_;    // what the kernels take in and give out
  int64_t next_far_ = 0;
  int64_t next_copy_ = 0;
};

}  // namespace spillway
