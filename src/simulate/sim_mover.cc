#include "src/simulate/sim_mover.h"

#include <algorithm>

#include "spillway/error.h"

namespace spillway {

SimMover::SimMover(const Plan& plan, const CostRates& rates, const EventSink& sink)
    : plan_(plan),
      sink_(sink),
      links_(sink, rates.beside_compute, rates.disk_both_frac),
      weights_loaded_(plan.layers.size()),
      kv_stored_(static_cast<std::size_t>(plan.num_batches * plan.shape.num_layers)),
      hidden_stored_(static_cast<std::size_t>(plan.num_batches)) {}

void SimMover::BeginBlock(const Schedule& grid, int64_t first_pass) {
  grid_ = &grid;
  first_pass_ = first_pass;
  skipped_passes_ = 0;
}

void SimMover::Begin(const Task& task, const CostModel& model, const BatchLoad& load) {
  const Cursor& cell = task.cell;
  SimTransfer transfer;
  Task of_run = task;
  of_run.cell.pass += skipped_passes_;
  transfer.bytes = model.Bytes(of_run, load);
  if (task.kind == TaskKind::kLoadWeights && !first_loaded_) {
    transfer.bytes = FirstWeightBytes(plan_);
    first_loaded_ = true;
  }
  for (const Link link : kAllLinks) {
    transfer.seconds[link] = model.Seconds(link, task.kind, transfer.bytes[link]);
  }
  const auto batch = static_cast<std::size_t>(cell.batch);
  switch (task.kind) {
    case TaskKind::kLoadWeights:
      transfer.label = LabelOf(TraceSubject::kWeights, cell);
      weights_loaded_[static_cast<std::size_t>(cell.layer)] =
          links_.Add(SimStream::kWeightsIn, transfer);
      return;
    case TaskKind::kLoadKv:
      transfer.label = LabelOf(TraceSubject::kKv, cell);
      transfer.after = std::max(kv_.stored[grid_->KvSlot(cell)], KvStored(cell));
      kv_.loaded[grid_->KvSlot(cell)] = links_.Add(SimStream::kRowsIn, transfer);
      return;
    case TaskKind::kLoadHidden:
      transfer.label = LabelOf(TraceSubject::kHidden, cell);
      transfer.after = std::max(hidden_.stored[grid_->HiddenSlot(cell)], hidden_stored_[batch]);
      hidden_.loaded[grid_->HiddenSlot(cell)] = links_.Add(SimStream::kRowsIn, transfer);
      return;
    case TaskKind::kStoreKv:
      transfer.label = LabelOf(TraceSubject::kKv, cell);
      Timed(waits_.stores_s, TraceSubject::kKv, cell,
            [&] { links_.WaitFor(SimStream::kOut, KvStored(cell)); });
      kv_.stored[grid_->KvSlot(cell)] = KvStored(cell) = links_.Add(SimStream::kOut, transfer);
      return;
    case TaskKind::kStoreHidden:
      transfer.label = LabelOf(TraceSubject::kHidden, cell);
      hidden_.stored[grid_->HiddenSlot(cell)] = hidden_stored_[batch] =
          links_.Add(SimStream::kOut, transfer);
      return;
    case TaskKind::kCompute:
      break;
  }
  SPILLWAY_CHECK(false);
}

template <typename F>
void SimMover::Timed(double& waited_s, TraceSubject subject, const Cursor& cell, F wait) {
  const double begin_s = now_s();
  wait();
  if (now_s() == begin_s) return;
  waited_s += now_s() - begin_s;
  if (sink_) {
    sink_(TraceSpan{TraceLane::kWaiting, LabelOf(subject, cell), begin_s, now_s(), 0});
  }
}

void SimMover::WaitForLoads(const Cursor& at) {
  Timed(waits_.weights_s, TraceSubject::kWeights, at, [&] {
    links_.WaitFor(SimStream::kWeightsIn, weights_loaded_[static_cast<std::size_t>(at.layer)]);
  });
  if (plan_.layers[static_cast<std::size_t>(at.layer)].attends) {
    Timed(waits_.kv_s, TraceSubject::kKv, at, [&] {
      links_.WaitFor(SimStream::kRowsIn, kv_.loaded[grid_->KvSlot(at)]);
      links_.WaitFor(SimStream::kOut, kv_.stored[grid_->KvSlot(at)]);
    });
  }
  Timed(waits_.hidden_s, TraceSubject::kHidden, at, [&] {
    links_.WaitFor(SimStream::kRowsIn, hidden_.loaded[grid_->HiddenSlot(at)]);
    links_.WaitFor(SimStream::kOut, hidden_.stored[grid_->HiddenSlot(at)]);
  });
}

void SimMover::WaitForStores() {
  Timed(waits_.stores_s, TraceSubject::kStores, {-1, -1, -1}, [&] {
    for (const uint64_t stored : kv_.stored) links_.WaitFor(SimStream::kOut, stored);
    for (const uint64_t stored : hidden_.stored) links_.WaitFor(SimStream::kOut, stored);
  });
}

double SimMover::Compute(const Cursor& at, double seconds) {
  const double begin_s = now_s();
  links_.Compute(seconds);
  if (sink_) {
    sink_(TraceSpan{TraceLane::kCompute, LabelOf(TraceSubject::kCompute, at), begin_s, now_s(), 0});
  }
  return now_s() - begin_s;
}

TraceLabel SimMover::LabelOf(TraceSubject subject, const Cursor& cell) const {
  if (cell.layer < 0) return {subject};
  const bool of_all_batches = subject == TraceSubject::kWeights;
  return {subject, {first_pass_ + cell.pass, cell.layer, of_all_batches ? -1 : cell.batch}};
}

uint64_t& SimMover::KvStored(const Cursor& cell) {
  return kv_stored_[static_cast<std::size_t>(cell.batch * plan_.shape.num_layers +
                                             plan_.BlockOf(cell))];
}

}  // namespace spillway
