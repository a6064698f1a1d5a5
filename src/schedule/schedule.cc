#include "spillway/schedule.h"

namespace spillway {

Schedule MakeSchedule(const Plan& plan, Overlap overlap) {
  return {MakeGrid(plan.layers, plan.order), plan.num_batches, overlap, plan.weight_lookahead};
}

TaskList Schedule::At(const Cursor& at) const {
  return overlap == Overlap::kOn ? Overlapped(at) : Serial(at);
}

TaskList Schedule::Overlapped(const Cursor& at) const {
  TaskList tasks;
  // KV is needed by attention only: the link has until the next attention cell. Which rows run in
  // the next pass is known when this one has ended, so a pass begins with its first load.
  const bool begins_pass = at.layer == 0 && at.batch == 0;
  if (begins_pass || Attends(at)) {
    Cursor attention = Next(at);
    while (attention.pass == at.pass && !Attends(attention)) attention = Next(attention);
    if (attention.pass == at.pass) tasks.Add({TaskKind::kLoadKv, attention});
  }
  // The states of a single batch stay where they are computed; those of a pass begin with the
  // embedding and end with the head.
  const Cursor next = Next({at.pass, Layer(at.layer).group_end, at.batch});
  if (num_batches > 1 && BeginsGroup(at) && next.layer > 0) {
    tasks.Add({TaskKind::kLoadHidden, next});
  }
  const int64_t ahead = at.layer + weight_lookahead;
  const Cursor coming = {at.pass + ahead / num_layers(), ahead % num_layers(), 0};
  tasks.Add({TaskKind::kLoadWeights, coming, at.batch, num_batches});
  tasks.Add({TaskKind::kCompute, at});
  if (Attends(at)) tasks.Add({TaskKind::kStoreKv, at});
  if (num_batches > 1 && EndsGroup(at) && !EndsBatch(at)) {
    tasks.Add({TaskKind::kStoreHidden, at});
  }
  return tasks;
}

TaskList Schedule::Serial(const Cursor& at) const {
  TaskList tasks;
  if (Attends(at)) tasks.Add({TaskKind::kLoadKv, at});
  if (num_batches > 1 && BeginsGroup(at) && at.layer > 0) tasks.Add({TaskKind::kLoadHidden, at});
  if (at.batch == 0) tasks.Add({TaskKind::kLoadWeights, {at.pass, at.layer, 0}});
  tasks.Add({TaskKind::kCompute, at});
  if (Attends(at)) tasks.Add({TaskKind::kStoreKv, at});
  if (num_batches > 1 && EndsGroup(at) && !EndsBatch(at)) {
    tasks.Add({TaskKind::kStoreHidden, at});
  }
  return tasks;
}

}  // namespace spillway
