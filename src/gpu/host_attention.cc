#include "src/gpu/host_attention.h"

#include <algorithm>

#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"
#include "src/compute/rope_tables.h"

namespace spillway {

int64_t HostAttention::WorkspaceBytes(const Plan& plan) {
  const int64_t slots = RoundUp(plan.longest.slots() + 1, KvBlockSlots(plan.policy.kv_bits));
  const auto bytes = plan.kept.evicts() ? kernels::BudgetAttentionWorkspaceBytes
                                        : kernels::AttentionWorkspaceBytes;
  return bytes(slots, plan.shape.head_dim, plan.machine.num_threads, kernels::BestIsa());
}

HostAttention::HostAttention(const Plan& plan, const LayerArgs& layer, const Memory& memory,
                             ThreadPool& pool)
    : plan_(plan), layer_(layer), memory_(memory), pool_(pool), isa_(kernels::BestIsa()) {
  for (Lists& lists : lists_) {
    const auto rows = static_cast<std::size_t>(plan.batch.rows);
    lists.rows.reserve(rows);
    lists.budget_rows.reserve(rows * static_cast<std::size_t>(plan.KvRuns()));
    lists.jobs.reserve(static_cast<std::size_t>(MaxChunks(plan)));
  }
  if (memory.means != nullptr) FillSpanTurns(plan, memory.span_turns, pool);
}

void HostAttention::BeginCompute(int64_t number) {
  current_ = static_cast<std::size_t>(number % kHostTables);
  lists().rows.clear();
  lists().budget_rows.clear();
  lists().jobs.clear();
  chunk_begin_ = 0;
}

void HostAttention::Add(kernels::AttentionRow row) {
  row.token_offset = static_cast<int64_t>(lists().rows.size() - chunk_begin_);
  lists().rows.push_back(row);
}

// A row's runs come one behind the other.
void HostAttention::Add(kernels::BudgetAttentionRow run) {
  const auto runs = static_cast<int64_t>(lists().budget_rows.size() - chunk_begin_);
  run.token_offset = runs / plan_.KvRuns();
  lists().budget_rows.push_back(run);
}

HostAttention::Job* HostAttention::EndChunk(const PlannedLayer& layer, std::size_t turn) {
  Lists& of = lists();
  const std::size_t end = of.rows.size() + of.budget_rows.size();  // one of them is empty
  if (end == chunk_begin_) return nullptr;
  SPILLWAY_CHECK(of.jobs.size() < of.jobs.capacity());
  Job& job = of.jobs.emplace_back();
  job.attention = this;
  job.op = AttendOf(layer.ops);
  job.layer = &layer;
  job.turn = turn;
  if (plan_.kept.evicts()) {
    job.budget_rows = std::span(of.budget_rows).subspan(chunk_begin_);
  } else {
    job.rows = std::span(of.rows).subspan(chunk_begin_);
  }
  chunk_begin_ = end;
  return &job;
}

void HostAttention::Run(void* job) noexcept {
  const Job& asked = *static_cast<const Job*>(job);
  HostAttention& self = *asked.attention;
  if (self.failed_) return;
  try {
    self.RunJob(asked);
  } catch (...) {
    self.failure_ = std::current_exception();
    self.failed_ = true;
  }
}

void HostAttention::RunJob(const Job& job) {
  float* qkv = memory_.qkv[job.turn];
  float* attended = memory_.attended[job.turn];
  if (!job.budget_rows.empty()) {
    kernels::BudgetAttentionArgs args = layer_.Budget(job.op, qkv, attended, job.budget_rows);
    args.sinks = SinksOf(job);
    args.means = MeansOf(job);
    return kernels::BudgetAttention(args, memory_.workspace, pool_, isa_);
  }
  kernels::AttentionArgs args = layer_.Attention(job.op, qkv, attended, job.rows);
  args.sinks = SinksOf(job);
  args.means = MeansOf(job);
  kernels::Attention(args, memory_.workspace, pool_, isa_);
}

// The sinks as the GPU has sent them: the layer's own are in its memory.
const float* HostAttention::SinksOf(const Job& job) const {
  return job.op.sinks.exists() ? memory_.sinks[job.turn] : nullptr;
}

// The layer's means of keys in a table of the host's own, made from what the GPU found.
kernels::KeyMeans HostAttention::MeansOf(const Job& job) {
  if (memory_.means == nullptr) return {};
  int64_t num_positions = 0;
  for (const kernels::AttentionRow& row : job.rows)
    num_positions = std::max(num_positions, row.num_past + row.num_new);
  for (const kernels::BudgetAttentionRow& row : job.budget_rows)
    num_positions = std::max(num_positions, row.position + 1);
  const int64_t layer = job.layer->decoder_layer;
  const int64_t width = plan_.shape.num_kv_heads * plan_.shape.head_dim;
  const LayerArgs::MeansMemory memory = {memory_.means + layer * width, memory_.span_turns,
                                         memory_.means_table};
  kernels::FillSpanMeans(layer_.SpanMeans(*job.layer, memory, means_.Take(layer, num_positions)),
                         pool_);
  return {memory_.means_table, plan_.workspace.mean_spans};
}

void HostAttention::ThrowIfFailed() const {
  if (failed_) std::rethrow_exception(failure_);
}

}  // namespace spillway
