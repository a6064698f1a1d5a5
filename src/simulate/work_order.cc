#include "src/simulate/work_order.h"

namespace spillway {

WorkOrder ZigZagOrder(const Plan& plan, Overlap overlap) {
  WorkOrder order;
  order.schedule = MakeSchedule(plan, overlap);
  order.tasks = [](const Schedule& schedule, const Cursor& at) { return schedule.At(at); };
  order.attends_beside = plan.AttendsBeside();
  order.prefill_rates = order.decode_rates = RatesOf(plan.machine);
  return order;
}

}  // namespace spillway
