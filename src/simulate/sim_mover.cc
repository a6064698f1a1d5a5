#include "src/simulate/sim_mover.h"

namespace spillway {

uint64_t SimMover::Streams::Add(StreamKind kind, SimTransfer transfer, const TraceLabel& label,
                                uint64_t after) {
  transfer.label = label;
  transfer.after = after;
  return links.Add(kind, transfer);
}

void SimMover::Streams::NoteWait(const TraceLabel& label, double begin_s, double end_s) const {
  if (sink) sink(TraceSpan{TraceLane::kWaiting, label, begin_s, end_s, 0});
}

void SimMover::Begin(const Task& task, const CostModel& model, const BatchLoad& load) {
  Task of_block = task;
  of_block.cell.pass += skipped_passes_;
  const bool first_weights = task.kind == TaskKind::kLoadWeights && !order_.HasLoadedWeights();
  SimTransfer transfer;
  transfer.bytes = first_weights ? FirstWeightBytes(plan_) : model.Bytes(of_block, load);
  for (const Link link : kAllLinks) {
    transfer.seconds[link] = model.Seconds(link, task.kind, transfer.bytes[link]);
  }
  order_.Begin(task, transfer);
}

double SimMover::Compute(const Cursor& at, double seconds) {
  const double begin_s = now_s();
  streams_.links.Compute(seconds);
  if (streams_.sink) {
    const TraceLabel label = order_.LabelOf(TraceSubject::kCompute, at);
    streams_.sink(TraceSpan{TraceLane::kCompute, label, begin_s, now_s(), 0});
  }
  return now_s() - begin_s;
}

}  // namespace spillway
