#include "src/simulate/flexgen_schedule.h"

#include "policies/cost/cost_model.h"
#include "spillway/error.h"
#include "spillway/machine.h"

namespace spillway {
namespace {

// The cell before; of the first cell of a run there is none, and its pass is -1.
Cursor Before(const Schedule& schedule, Cursor at) {
  if (--at.batch >= 0) return at;
  at.batch = schedule.num_batches - 1;
  if (--at.layer >= 0) return at;
  at.layer = schedule.num_layers() - 1;
  --at.pass;
  return at;
}

// The next layer's weights as a whole at batch 0; KV and states of the next batch; stores of the
// batch before; this batch's compute.
TaskList FlexGenTasks(const Schedule& schedule, const Cursor& at) {
  TaskList tasks;
  const Cursor next = schedule.Next(at);
  const Cursor before = Before(schedule, at);
  const bool moves_states = schedule.num_batches > 1;
  const bool same_pass = next.pass == at.pass;
  if (at.batch == 0) {
    const int64_t layer = at.layer + 1;
    tasks.Add({TaskKind::kLoadWeights,
               {at.pass + layer / schedule.num_layers(), layer % schedule.num_layers(), 0}});
  }
  if (same_pass && schedule.Layer(next.layer).attends) tasks.Add({TaskKind::kLoadKv, next});
  if (before.pass == at.pass) {
    if (moves_states && !schedule.EndsBatch(before)) tasks.Add({TaskKind::kStoreHidden, before});
    if (schedule.Layer(before.layer).attends) tasks.Add({TaskKind::kStoreKv, before});
  }
  if (moves_states && same_pass && next.layer > 0) tasks.Add({TaskKind::kLoadHidden, next});
  tasks.Add({TaskKind::kCompute, at});
  return tasks;
}

enum class FlexGenPass { kPrefill, kDecode };

// A machine file's effective rates as those of one kind of pass. FlexGen computes the full square
// of a prompt's attention, the cost model counts the half that is needed. Its KV crosses from
// unpinned memory at a pace of its own. Requires: machine.flexgen.
CostRates FlexGenRatesOf(const Machine& machine, FlexGenPass pass) {
  SPILLWAY_CHECK(machine.flexgen.has_value());
  const FlexGenRates& flexgen = *machine.flexgen;
  const bool prefill = pass == FlexGenPass::kPrefill;
  CostRates rates = RatesOf(machine);
  rates.link_bytes_per_s[Link::kCpuToGpu] = flexgen.cpu_to_gpu_bytes_per_s;
  rates.link_bytes_per_s[Link::kGpuToCpu] = flexgen.gpu_to_cpu_hidden_bytes_per_s;
  rates.link_bytes_per_s[Link::kDiskRead] = flexgen.disk_read_bytes_per_s;
  rates.link_bytes_per_s[Link::kDiskWrite] = flexgen.disk_write_bytes_per_s;
  rates.kv_bytes_per_s = rates.link_bytes_per_s;
  rates.kv_bytes_per_s[Link::kGpuToCpu] = flexgen.gpu_to_cpu_kv_bytes_per_s;
  rates.device.memory_bytes_per_s = flexgen.gpu_memory_bytes_per_s;
  rates.device.launch_s = flexgen.launch_s;
  rates.device.matmul = {
      {1, prefill ? flexgen.prefill_matmul_flops_per_s : flexgen.decode_matmul_flops_per_s}};
  rates.device.prefill_attention_flops_per_s = flexgen.prefill_attention_flops_per_s / 2.0;
  // Two bytes of K and two of V for the four operations of a head dimension.
  rates.device.decode_attention_bytes_per_s = flexgen.decode_attention_flops_per_s;
  rates.cpu.decode_attention_bytes_per_s = flexgen.cpu_attention_flops_per_s;
  return rates;
}

}  // namespace

WorkOrder FlexGenOrder(const Plan& plan, Overlap overlap) {
  WorkOrder order;
  order.schedule = MakeSchedule(plan, overlap);
  order.schedule.layers = MakeGrid(plan.layers, GridOrder::kByLayer);
  order.schedule.weight_lookahead = 1;
  order.tasks = &FlexGenTasks;
  order.waits_for_all = true;
  order.prefill_rates = FlexGenRatesOf(plan.machine, FlexGenPass::kPrefill);
  order.decode_rates = FlexGenRatesOf(plan.machine, FlexGenPass::kDecode);
  return order;
}

}  // namespace spillway
