// Plan: every byte's place, decided before the first is allocated. The stage between Policy and
// Schedule. Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spillway/machine.h"
#include "spillway/model.h"
#include "spillway/policy.h"
#include "spillway/tier.h"
#include "spillway/workload.h"

namespace spillway {

// Output features [row_begin, row_end) of a tensor, contiguous at `offset` of a tier's arena.
struct WeightTile {
  Tier tier = Tier::kCpu;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t offset = 0;
};

struct PlannedTensor {
  TensorSpec spec;
  std::vector<WeightTile> tiles;  // ascending rows, together all of them
};

struct PlannedLayer {
  LayerKind kind;
  int64_t block = -1;
  std::vector<PlannedTensor> tensors;
};

// What one batch of rows may hold. A block is num_gpu_batches of these.
struct BatchCapacity {
  int64_t rows = 0;
  int64_t slots = 0;          // sum of the rows' KV slots
  int64_t prompt_tokens = 0;  // sum of the rows' prompts: hidden states of a prefill pass
};

// A named run of bytes in a tier's arena.
struct Region {
  int64_t offset = 0;
  int64_t bytes = 0;
};

// Buffers that one Compute uses, all in the compute device's arena. Sizes in tokens of a chunk.
struct WorkspacePlan {
  int64_t chunk_tokens = 0;
  Region normed;    // fp32 [max(chunk, rows), hidden]
  Region qkv;       // fp32 [chunk, q + k + v]
  Region attended;  // fp32 [chunk, q]
  Region ffn;       // fp32 [chunk, ffn]
  Region embedded;  // fp32 [max(chunk, rows), embed], with project_in/out
  Region logits;    // fp32 [rows, vocab]
  Region matmul;    // the kernels' own
  Region attention;
};

struct Plan {
  ModelShape shape;
  Machine machine;
  Policy policy;
  std::vector<PlannedLayer> layers;  // execution order
  int64_t num_requests = 0;          // of the workload
  int64_t num_batches = 1;           // of a block; no more than the workload can fill
  BatchCapacity batch;
  int64_t slot_bytes = 0;  // K and V of one token in one block
  int64_t slot_align =
      1;          // a row's slots are rounded up to a multiple: rows start at 64-byte boundaries
  Region kv;      // [batch] of batch.slots slots for every block
  Region hidden;  // fp32 [batch][batch.prompt_tokens, hidden]
  WorkspacePlan workspace;
  PerTier<int64_t> weight_bytes;
  PerTier<int64_t> arena_bytes;  // equals the planned peak

  int64_t KvBatchBytes() const { return batch.slots * slot_bytes * shape.num_layers; }
  int64_t HiddenBatchBytes() const { return batch.prompt_tokens * shape.hidden_size * 4; }
};

// How much workspace the kernels ask for; passed in so that planning links no kernels.
struct KernelNeeds {
  int64_t (*matmul_bytes)(int64_t rows, int64_t in, int num_threads) = nullptr;
  int64_t (*attention_bytes)(int64_t slots, int64_t head_dim, int num_threads) = nullptr;
};

// Places everything without looking at the caps; for those that compare many policies.
Plan LayOut(const ModelShape& shape, const Machine& machine, const Workload& work,
            const Policy& policy, const KernelNeeds& needs);

// Whether each tier's arena is within its cap.
bool Fits(const Plan& plan);

// Places everything the policy asks for and proves that it fits the caps.
// Throws: Error kGpuMemory, kCpuMemory, kDiskSpace with needed against available and the nearest
// change that fits.
Plan MakePlan(const ModelShape& shape, const Machine& machine, const Workload& work,
              const Policy& policy, const KernelNeeds& needs);

}  // namespace spillway
