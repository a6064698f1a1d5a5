// HostAttention: decode steps that the CPU does for a GPU's executor, of rows whose KV lies in CPU
// memory, while the GPU computes other batches. q, k and v of a step come to pinned memory, and
// what was attended goes back from there; chunks use that memory in turns. A chunk is listed when
// its compute is enqueued and attended to when the GPU has sent its rows.
// Thread rule: one thread lists and asks for failures; another one, later, runs the jobs, one at a
// time. The pool is this object's alone while a job may run.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/budget_attention.h"
#include "spillway/plan.h"
#include "src/base/isa.h"
#include "src/base/thread_pool.h"
#include "src/compute/layer_args.h"
#include "src/gpu/exchange.h"

namespace spillway {

class HostAttention {
 public:
  // A chunk's rows; in both spans token_offset counts 0, 1, ... in the memory of `turn`.
  struct Job {
    HostAttention* attention = nullptr;
    Attend op;
    const PlannedLayer* layer = nullptr;
    std::size_t turn = 0;
    std::span<const kernels::AttentionRow> rows;
    std::span<const kernels::BudgetAttentionRow> budget_rows;
  };

  struct Memory {
    std::array<float*, kHostTurns> qkv{};       // [rows, q + k + v]
    std::array<float*, kHostTurns> attended{};  // [rows, q]
    std::array<float*, kHostTurns> sinks{};     // [heads]; not read where a layer has none
    std::span<std::byte> workspace;             // of the kernels
    // Of centred keys, as BesideLayout::Means has them; null: they are not.
    const float* means = nullptr;
    float* span_turns = nullptr;
    float* means_table = nullptr;
  };

  // Bytes of Memory::workspace.
  static int64_t WorkspaceBytes(const Plan& plan);

  // Lifetime: all of these outlive the object.
  HostAttention(const Plan& plan, const LayerArgs& layer, const Memory& memory, ThreadPool& pool);

  // Begins to list compute `number`. What was listed kHostTables computes ago is dropped.
  void BeginCompute(int64_t number);

  // Lists a row of the current chunk, with one token.
  void Add(kernels::AttentionRow row);
  void Add(kernels::BudgetAttentionRow row);

  // The chunk's job; null where it has no rows. Lifetime: kHostTables computes.
  Job* EndChunk(const PlannedLayer& layer, std::size_t turn);

  // Runs a job; `job` is a Job*. After a failure it does nothing.
  static void Run(void* job) noexcept;

  // Throws what the first failing job threw. A job that still runs may fail later: the next call
  // sees it.
  void ThrowIfFailed() const;

 private:
  struct Lists {  // of one compute
    std::vector<kernels::AttentionRow> rows;
    std::vector<kernels::BudgetAttentionRow> budget_rows;
    std::vector<Job> jobs;
  };

  void RunJob(const Job& job);
  const float* SinksOf(const Job& job) const;
  kernels::KeyMeans MeansOf(const Job& job);
  Lists& lists() { return lists_[current_]; }

  const Plan& plan_;
  const LayerArgs& layer_;
  Memory memory_;
  ThreadPool& pool_;
  kernels::Isa isa_;
  std::array<Lists, kHostTables> lists_;
  std::size_t current_ = 0;
  std::size_t chunk_begin_ = 0;  // the current chunk's first row in its list
  FilledMeans means_;            // in the table; of the jobs' thread
  std::atomic<bool> failed_ = false;
  std::exception_ptr failure_;  // written before failed_
};

}  // namespace spillway
