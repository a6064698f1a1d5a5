// Exchange: the memory through which a GPU's executor and the host pass what is neither weights nor
// KV nor hidden states: the tables that the kernels of a compute read, and the logits. Sized by the
// plan. Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>

#include "spillway/plan.h"
#include "src/gpu/attention_lists.h"
#include "src/memory/arena.h"

namespace spillway {

// Computes that the host may be ahead of the GPU; each has a table of its own in host memory.
// Enough that a sleeping host wakes before the GPU runs dry.
inline constexpr int64_t kComputesAhead = 4;
inline constexpr int64_t kHostTables = kComputesAhead + 1;

// Buffers through which attention kernels pass results to one another, behind the table: offsets
// within plan.exchange.device. Only the regions of the plan's kind of cache, full or evicting, are
// not empty.
struct AttentionScratch {
  Region partials;        // fp32: of decode attention's splits
  Region log_sums;        // fp32 [chunk tokens, heads]: of prefill, for the token scores
  Region compact_scores;  // fp32 [KV heads, prompt slots]
  Region compact_kept;    // int32, the same
  Region weights;         // fp32 [rows, heads, weights_stride]: of a decode step
  Region turn_rows;       // int32 [rows, KV heads, weights_stride]: likewise, of a cache that rolls
  Region reference;       // of the reference prompt: reference_keys.h
  int64_t weights_stride = 0;
};

// Chunks whose attention is the CPU's use its memory in turns: the GPU begins one while the CPU
// attends to the one before.
inline constexpr std::size_t kHostTurns = 2;

// Memory for attention on the CPU beside the GPU (Plan::AttendsBeside): what the GPU's first part
// of an attention layer has to itself, since the rest of another compute runs beside it, and what
// passes between GPU and CPU. Offsets within plan.exchange.device, or, where marked host, within
// plan.exchange.host.
struct BesideLayout {
  struct Turn {
    Region attended;       // fp32 [chunk tokens, q]
    Region host_qkv;       // host: fp32 [rows, q + k + v]
    Region host_attended;  // host: fp32 [rows, q]
    Region host_sinks;     // host: fp32 [heads]; empty where attention has none
  };
  // Host: what centres keys on the CPU, as WorkspacePlan has it; empty where nothing does.
  struct Means {
    Region of_layers;  // fp32 [decoder layer][kv_head][head_dim]: as the GPU found them
    Region span_turns;
    Region table;  // of the layer that is attended to
  };
  std::array<Region, kHostTurns> tables;  // the second part of a compute reads its own too
  Region normed;                          // this and the next two as those of WorkspacePlan
  Region qkv;
  Region matmul;
  std::array<Turn, kHostTurns> turns;
  Region host_workspace;  // host: of the CPU's kernels
  Means host_means;
};

// Lists of tokens by experts are written by the host in turns: one while the GPU reads the other.
inline constexpr std::size_t kExpertTurns = 2;

// Memory for the tokens of a layer's experts (gpu_experts.h), of models that have experts. Offsets
// as those of BesideLayout.
struct ExpertExchange {
  Region lists;  // addresses and weights of a token's states for each of its experts
  std::array<Region, kExpertTurns> host_lists;  // host
  Region host_choices;                          // host: fp32 [tokens, 2 * slots]
};

// Sizes, and offsets within plan.exchange.
struct ExchangeLayout {
  int64_t table_bytes = 0;
  AttentionScratch scratch;
  int64_t logits_bytes = 0;  // host, behind the tables
  BesideLayout beside;       // behind all that; empty where the CPU does not attend
  ExpertExchange experts;    // behind that
  ExchangeBytes bytes;       // of all
};

// The most chunks that a pass of a batch is cut into: each tier's share of the tokens on its own.
int64_t MaxChunks(const Plan& plan);

ExchangeLayout LayOutExchange(const Plan& plan);
AttentionLimits ChunkLimits(const Plan& plan);

// A region of AttentionScratch or of BesideLayout in GPU memory; null: it is empty.
template <typename T>
T* ExchangeAt(const Plan& plan, const Arena& device, const Region& region) {
  if (region.bytes == 0) return nullptr;
  return device.As<T>({plan.exchange.device.offset + region.offset, region.bytes});
}

// Bytes of plan.exchange. Requires: all of the plan but its exchange is laid out.
ExchangeBytes ExchangeBytesOf(const Plan& plan);

}  // namespace spillway
