#include "policies/cost/decode_work.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "policies/cost/expert_work.h"

namespace spillway {
namespace {

double NumElements(const Plan& plan, const Linear& linear) {
  const TensorSpec& weight = plan.Tensor(linear.weight).spec;
  return static_cast<double>(weight.rows * weight.cols);
}

// Numbers of the matrices that a token is multiplied with.
double NumMultiplied(const Plan& plan) {
  double count = 0.0;
  for (const PlannedLayer& layer : plan.layers) {
    for (const Op& op : layer.ops) {
      if (const auto* linear = std::get_if<Linear>(&op)) count += NumElements(plan, *linear);
      const auto* experts = std::get_if<Experts>(&op);
      if (experts == nullptr) continue;
      const double share = ChosenShare(plan.shape.experts, *experts);
      for (const Linear* linear : ProductsOf(*experts)) count += share * NumElements(plan, *linear);
    }
  }
  return count;
}

// Bytes of the weights that a batch's decode pass reads: not those of experts that no row has.
double WeightsRead(const Plan& plan) {
  auto bytes = static_cast<double>(plan.WeightBytes());
  for (const PlannedLayer& layer : plan.layers) {
    for (const Op& op : layer.ops) {
      const auto* experts = std::get_if<Experts>(&op);
      if (experts == nullptr) continue;
      const double touched = ExpertLoadOf(plan.shape.experts, *experts, plan.batch.rows).touched /
                             static_cast<double>(experts->experts.size());
      for (const TensorRef ref : TensorsOf({*experts}))
        bytes -= (1.0 - touched) * static_cast<double>(plan.Tensor(ref).spec.bytes());
    }
  }
  return bytes;
}

// Slots attended to by one row in one decoder layer, over all its decode passes.
double AttendedSlots(const Plan& plan, int64_t decoder_layer, const RequestShape& row) {
  const int64_t kv_class = plan.kv_class_of[static_cast<std::size_t>(decoder_layer)];
  double attended = 0.0;
  ForEachKvRun(plan, {kv_class, row.slots()}, [&](const KvRunPlace& run) {
    for (int64_t past = row.prompt_tokens; past + 1 < row.slots(); ++past)
      attended += static_cast<double>(run.keep.NumHeld(past) + 1);
  });
  return attended;
}

RequestShape MeanRow(const Trace& trace, int64_t num_rows) {
  const auto mean = [num_rows](int64_t tokens) {
    return static_cast<int64_t>(
        std::llround(static_cast<double>(tokens) / static_cast<double>(num_rows)));
  };
  return {mean(trace.prefill.prompt_tokens),
          mean(trace.prefill.generated_tokens + trace.decode.generated_tokens)};
}

// KV that the CPU attends to is not read by the device.
double DeviceShareOfKv(const Plan& plan) {
  if (plan.device() == Tier::kCpu || !plan.policy.cpu_attention) return 1.0;
  return plan.policy.kv_frac[Tier::kGpu];
}

}  // namespace

DecodeWork DecodeWorkOf(const Plan& plan, const Trace& trace) {
  DecodeWork work;
  if (trace.decode.passes == 0 || plan.num_requests == 0) return work;
  const auto batches = static_cast<double>(trace.decode.passes * plan.num_batches);
  work.flops = 2.0 * NumMultiplied(plan) * static_cast<double>(trace.decode.generated_tokens);
  work.memory_bytes = batches * WeightsRead(plan);
  const RequestShape row = MeanRow(trace, plan.num_requests);
  double attended = 0.0;  // by all rows in all blocks
  for (int64_t decoder_layer = 0; decoder_layer < plan.shape.num_layers; ++decoder_layer) {
    attended += AttendedSlots(plan, decoder_layer, row);
  }
  attended *= static_cast<double>(plan.num_requests);
  // Two products of head_dim for each head: scores, and the sum of values.
  const int64_t run_heads = plan.shape.num_heads / plan.KvRuns();
  work.flops += 4.0 * attended * static_cast<double>(run_heads * plan.shape.head_dim);
  work.memory_bytes += attended * static_cast<double>(plan.UsedSlotBytes()) * DeviceShareOfKv(plan);
  return work;
}

}  // namespace spillway
