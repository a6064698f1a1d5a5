#include "spillway/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "spillway/error.h"
#include "src/size_text.h"

namespace spillway {
namespace {

constexpr int64_t kAlignBytes = 64;  // a cache line; tiles of the disk store have their own rule

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Hands out aligned runs of an arena that is only counted, not yet allocated.
class Cursor64 {
 public:
  explicit Cursor64(int64_t begin) : end_(begin) {}
  Region Take(int64_t bytes) {
    const Region region{end_, bytes};
    end_ += RoundUp(bytes, kAlignBytes);
    return region;
  }
  int64_t end() const { return end_; }

 private:
  int64_t end_;
};

// The sum of the `count` largest values, which is the most that a batch of that many rows can ask
// for.
int64_t SumOfLargest(std::vector<int64_t> values, int64_t count) {
  const auto kept =
      static_cast<std::size_t>(std::min<int64_t>(count, static_cast<int64_t>(values.size())));
  std::partial_sort(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(kept),
                    values.end(), std::greater<>());
  return std::accumulate(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(kept),
                         int64_t{0});
}

BatchCapacity CapacityFor(const Workload& work, int64_t rows, int64_t slot_align) {
  std::vector<int64_t> slots;
  std::vector<int64_t> prompts;
  for (const RequestShape& request : work.sample) {
    slots.push_back(RoundUp(request.slots(), slot_align));
    prompts.push_back(request.prompt_tokens);
  }
  BatchCapacity batch;
  batch.rows = std::max<int64_t>(1, std::min(rows, work.num_requests));
  // A row beyond the sample may be longer than all of it; a batch must at least hold that row
  // alone.
  batch.slots = std::max(SumOfLargest(slots, rows), RoundUp(work.longest.slots(), slot_align));
  batch.prompt_tokens = std::max(SumOfLargest(prompts, rows), work.longest.prompt_tokens);
  return batch;
}

std::vector<PlannedLayer> PlaceWeights(const ModelShape& shape, Cursor64& cpu) {
  std::vector<PlannedLayer> planned;
  for (LayerSpec& layer : Layers(shape)) {
    PlannedLayer out{layer.kind, layer.block, {}};
    for (TensorSpec& tensor : layer.tensors) {
      const Region place = cpu.Take(tensor.bytes());
      const WeightTile whole{Tier::kCpu, 0, tensor.rows, place.offset};
      out.tensors.push_back({std::move(tensor), {whole}});
    }
    planned.push_back(std::move(out));
  }
  return planned;
}

WorkspacePlan PlaceWorkspace(const Plan& plan, const KernelNeeds& needs, Cursor64& cpu) {
  const ModelShape& shape = plan.shape;
  const int64_t q = shape.num_heads * shape.head_dim;
  const int64_t kv = shape.num_kv_heads * shape.head_dim;
  WorkspacePlan work;
  work.chunk_tokens = std::clamp<int64_t>(plan.policy.prefill_chunk, 1,
                                          std::max(plan.batch.prompt_tokens, plan.batch.rows));
  const int64_t tokens = std::max(work.chunk_tokens, plan.batch.rows);
  const int64_t max_in = std::max({shape.ffn_size, shape.hidden_size, q, shape.embed_size});
  const auto floats = [](int64_t rows, int64_t cols) {
    return rows * cols * int64_t{sizeof(float)};
  };

  work.normed = cpu.Take(floats(tokens, std::max(shape.hidden_size, shape.embed_size)));
  work.matmul = cpu.Take(needs.matmul_bytes(tokens, max_in, plan.machine.num_threads));
  work.attention =
      cpu.Take(needs.attention_bytes(plan.batch.slots, shape.head_dim, plan.machine.num_threads));
  // Attention, MLP, embedding and head never run at the same time: they share what follows.
  Cursor64 attention(cpu.end());
  work.qkv = attention.Take(floats(work.chunk_tokens, q + 2 * kv));
  work.attended = attention.Take(floats(work.chunk_tokens, q));
  Cursor64 mlp(cpu.end());
  work.ffn = mlp.Take(floats(work.chunk_tokens, shape.ffn_size));
  Cursor64 ends(cpu.end());
  work.embedded = ends.Take(floats(tokens, shape.embed_size));
  work.logits = ends.Take(floats(plan.batch.rows, shape.vocab_size));
  cpu.Take(std::max({attention.end(), mlp.end(), ends.end()}) - cpu.end());
  return work;
}

}  // namespace

Plan LayOut(const ModelShape& shape, const Machine& machine, const Workload& work,
            const Policy& policy, const KernelNeeds& needs) {
  Plan plan;
  plan.shape = shape;
  plan.machine = machine;
  plan.policy = policy;
  plan.num_requests = work.num_requests;
  plan.slot_bytes = 2 * shape.num_kv_heads * shape.head_dim * DTypeBytes(policy.kv_dtype);
  plan.slot_align = kAlignBytes / std::gcd(kAlignBytes, plan.slot_bytes);
  plan.batch = CapacityFor(work, policy.gpu_batch_size, plan.slot_align);

  Cursor64 cpu(0);
  plan.layers = PlaceWeights(shape, cpu);
  plan.weight_bytes[Tier::kCpu] = cpu.end();
  // A last block of fewer batches needs no place for the others.
  plan.num_batches = std::clamp<int64_t>(
      (work.num_requests + plan.batch.rows - 1) / plan.batch.rows, 1, policy.num_gpu_batches);
  plan.kv = cpu.Take(plan.num_batches * plan.KvBatchBytes());
  plan.hidden = cpu.Take(plan.num_batches * plan.HiddenBatchBytes());
  plan.workspace = PlaceWorkspace(plan, needs, cpu);
  plan.arena_bytes[Tier::kCpu] = cpu.end();
  return plan;
}

bool Fits(const Plan& plan) {
  return std::ranges::all_of(
      kAllTiers, [&](Tier tier) { return plan.arena_bytes[tier] <= plan.machine.cap_bytes[tier]; });
}

Plan MakePlan(const ModelShape& shape, const Machine& machine, const Workload& work,
              const Policy& policy, const KernelNeeds& needs) {
  Plan plan = LayOut(shape, machine, work, policy, needs);
  if (Fits(plan)) return plan;

  const int64_t needed = plan.arena_bytes[Tier::kCpu];
  std::string remedy =
      fmt::format("give --cpu-memory {}MiB or more", (needed + (1 << 20) - 1) >> 20);
  Policy smaller = policy;
  while (smaller.gpu_batch_size * smaller.num_gpu_batches > 1) {
    (smaller.num_gpu_batches > 1 ? smaller.num_gpu_batches : smaller.gpu_batch_size) /= 2;
    if (!Fits(LayOut(shape, machine, work, smaller, needs))) continue;
    remedy = fmt::format("--gpu-batch-size {} --num-gpu-batches {} fits", smaller.gpu_batch_size,
                         smaller.num_gpu_batches);
    break;
  }
  throw Error(
      ErrorCode::kCpuMemory,
      fmt::format("needs {} of CPU memory (weights {}, KV {}, activations {}), {} available; {}",
                  SizeText(needed), SizeText(plan.weight_bytes[Tier::kCpu]),
                  SizeText(plan.kv.bytes),
                  SizeText(needed - plan.weight_bytes[Tier::kCpu] - plan.kv.bytes),
                  SizeText(machine.cap_bytes[Tier::kCpu]), remedy));
}

}  // namespace spillway
