#include "src/simulate/simulate.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "spillway/round.h"
#include "src/simulate/course.h"
#include "src/simulate/flexgen_schedule.h"
#include "src/simulate/sim_batch.h"
#include "src/simulate/sim_mover.h"
#include "src/simulate/work_order.h"
#include "src/walk/composer.h"
#include "src/walk/walk_blocks.h"

namespace spillway {
namespace {

// Blocks after which a long workload goes on in the same way.
constexpr int64_t kBlocksOfAlikeRows = 2;
constexpr int64_t kBlocksOfOtherRows = 2 * kBlocksPerWindow;

// Totals of a run, or of a part of it.
struct Totals {
  PhaseTotals prefill;
  PhaseTotals decode;
  UnitSeconds units;
  int64_t num_blocks = 0;
};

void Add(const PhaseTotals& from, double times, PhaseTotals& to) {
  const auto scaled = [times](int64_t count) -> int64_t {
    return std::llround(static_cast<double>(count) * times);
  };
  to.seconds += times * from.seconds;
  to.compute_s += times * from.compute_s;
  for (const ComputePart part : kAllComputeParts) to.parts[part] += times * from.parts[part];
  to.waits += from.waits * times;
  to.passes += scaled(from.passes);
  to.prompt_tokens += scaled(from.prompt_tokens);
  to.generated_tokens += scaled(from.generated_tokens);
  for (const Link link : kAllLinks) {
    to.links[link] += {scaled(from.links[link].bytes), times * from.links[link].busy_s};
  }
}

void Add(const Totals& from, double times, Totals& to) {
  Add(from.prefill, times, to.prefill);
  Add(from.decode, times, to.decode);
  for (const CostUnit unit : kAllCostUnits) to.units[unit] += times * from.units[unit];
  to.num_blocks += std::llround(static_cast<double>(from.num_blocks) * times);
}

WorkOrder OrderOf(const Plan& plan, const SimOptions& options) {
  return options.schedule == SimSchedule::kFlexGen ? FlexGenOrder(plan, options.overlap)
                                                   : ZigZagOrder(plan, options.overlap);
}

// Result of a walk: totals of each block, and the course of all of them.
struct Walked {
  std::vector<Totals> blocks;
  std::vector<CoursePoint> course;
  std::vector<std::size_t> block_begins;  // in the course

  CoursePoint End() const { return course.empty() ? CoursePoint{} : course.back(); }
  std::size_t BeginOf(std::size_t block) const {
    return block < block_begins.size() ? block_begins[block] : course.size();
  }
  CoursePoint EndOf(std::size_t block) const { return course[BeginOf(block + 1) - 1]; }
};

// Totals of a workload and its course.
struct WholeWalk {
  Totals totals;
  std::vector<CoursePoint> course;
};

// A cell that waits for the CPU's attention while the GPU has the next batch's first.
struct Postponed {
  Cursor at;
  UnitSeconds units;
};

// Walker for WalkBlocks: a clock, and links that go on between the blocks.
class Simulator {
 public:
  // One pass of a stretch stands for `stride`. Lifetime: all of these outlive the simulator.
  Simulator(const Plan& plan, const WorkOrder& order, const SimOptions& options,
            RequestSource& requests, int64_t stride)
      : plan_(plan),
        options_(options),
        requests_(requests),
        stride_(stride),
        order_(order),
        prefill_model_(plan, order_.prefill_rates),
        decode_model_(plan, order_.decode_rates),
        composer_(plan),
        mover_(plan, prefill_model_.rates(), options.sink),
        prefix_load_(PrefixLoad(plan)) {}

  // Walks all blocks.
  Walked Run() {
    WalkBlocks(order_.schedule, *this);
    return std::move(walked_);
  }

  int64_t NextBlock() {
    batches_.clear();
    for (ComposedBatch& batch : composer_.NextBlock(requests_)) {
      batches_.emplace_back(plan_, std::move(batch));
    }
    if (order_.waits_for_all) mover_.WaitForAll();
    return std::ssize(batches_);
  }

  void BeginBlock(const Schedule& grid) {
    walked_.blocks.emplace_back().num_blocks = 1;
    walked_.block_begins.push_back(walked_.course.size());
    mover_.BeginBlock(grid, num_passes_);
  }

  void Refill(int64_t batch) {
    SimBatch& refilled = batches_[static_cast<std::size_t>(batch)];
    for (ComposedRow& row : composer_.Refill(refilled.places(), requests_)) {
      refilled.Add(std::move(row));
    }
  }

  void BeginPass() {
    if (options_.on_pass) options_.on_pass(num_passes_, batches_);
    stretch_ = Stretch();
    Advance((stretch_ - 1) / 2);  // to its middle
    mover_.Skip((stretch_ - 1) / 2);
    loads_.clear();
    for (const SimBatch& batch : batches_) loads_.push_back(batch.Load());
    decoding_rows_ = DecodingRows();
    pass_ = {};
    units_ = {};
    for (const BatchLoad& load : loads_) {
      pass_.prompt_tokens += load.prompt_tokens;
      pass_.generated_tokens += load.rows;
    }
    pass_.prompt_tokens += plan_.prefix.num_tokens() * BeginningRows();
    if (options_.sink) options_.sink(RowSample{mover_.now_s(), pass_.generated_tokens});
    model_ = pass_.prompt_tokens > 0 ? &prefill_model_ : &decode_model_;
  }

  void BeginBatch(int64_t) {}
  TaskList TasksAt(const Schedule& grid, const Cursor& at) const { return order_.tasks(grid, at); }
  bool HasRows(int64_t batch) const { return !batches_[static_cast<std::size_t>(batch)].empty(); }
  bool HasRows() const { return !std::ranges::all_of(batches_, &SimBatch::empty); }

  void Begin(const Task& task) {
    mover_.Begin(task, *model_, loads_.empty() ? no_load_ : LoadAt(task.cell));
  }
  void WaitForStores() { mover_.WaitForStores(); }

  void Compute(const Cursor& at) {
    mover_.WaitForLoads(at);
    const UnitSeconds units = UnitsOf(at);
    units_ += order_.attends_beside ? ComputeBeside(at, units) : Compute(at, units);
  }

  void EndBatch(const Cursor&) {}  // rows end with the pass
  void EndCell() {
    if (order_.waits_for_all) mover_.WaitForAll();
  }

  void EndPass() {
    units_ += RunPostponed();
    AddTimes();
    pass_.passes = 1;
    Totals& totals = walked_.blocks.back();
    const auto times = static_cast<double>(stretch_);
    Add(pass_, times, pass_.prompt_tokens > 0 ? totals.prefill : totals.decode);
    for (const CostUnit unit : kAllCostUnits) totals.units[unit] += times * units_[unit];
    AddPoint(times);
    num_passes_ += stretch_;
    Advance(stretch_ - (stretch_ - 1) / 2);
    mover_.Skip(stretch_ - (stretch_ - 1) / 2 - 1);
  }

 private:
  const BatchLoad& LoadAt(const Cursor& at) const {
    return loads_[static_cast<std::size_t>(at.batch)];
  }

  void Advance(int64_t passes) {
    for (SimBatch& batch : batches_) {
      if (!batch.empty()) batch.Advance(passes);
    }
  }

  template <typename F>
  int64_t CountRows(F counts) const {
    int64_t rows = 0;
    for (const SimBatch& batch : batches_) {
      for (const RowGroup& group : batch.groups()) rows += counts(group) ? group.count : 0;
    }
    return rows;
  }
  int64_t DecodingRows() const {
    return CountRows([](const RowGroup& group) { return group.num_past > 0; });
  }
  int64_t BeginningRows() const {
    return CountRows([](const RowGroup& group) { return group.num_past == 0; });
  }

  // Adds where the run is after the pass, and the others that it stands for.
  void AddPoint(double times) {
    const bool prefills = pass_.prompt_tokens > 0;
    const CoursePoint more = {static_cast<double>(pass_.prompt_tokens),
                              static_cast<double>(decoding_rows_), prefills ? pass_.seconds : 0.0,
                              prefills ? 0.0 : pass_.seconds};
    walked_.course.push_back(Sum(walked_.End(), more, times));
  }

  // Passes that differ from the next one in the length of their rows alone, the next one included.
  int64_t Stretch() const {
    int64_t passes = stride_;
    for (const SimBatch& batch : batches_) {
      if (!batch.empty()) passes = std::min(passes, batch.PassesToEnd());
      for (const RowGroup& group : batch.groups()) {
        if (group.num_past == 0) return 1;
      }
    }
    return passes;
  }

  // Computes a cell as the executor does, which begins the next batch's attention before it ends
  // this one's: what follows the CPU's attention to a batch waits for it, behind the attention
  // layer of the next.
  UnitSeconds ComputeBeside(const Cursor& at, UnitSeconds units) {
    const bool attends = plan_.layers[static_cast<std::size_t>(at.layer)].attends;
    UnitSeconds done;
    const bool goes_first = attends && postponed_ && postponed_->at.batch != at.batch;
    if (!goes_first) done += RunPostponed();
    if (!attends && CpuDone(at) > mover_.now_s()) {
      postponed_ = {at, units};
      return done;
    }
    const double cpu_s = std::exchange(units[CostUnit::kCpuAttention], 0.0);
    done += Compute(at, units);
    if (cpu_s > 0.0) {
      cpu_free_s_ = CpuDone(at) = std::max(cpu_free_s_, mover_.now_s()) + cpu_s;
      done[CostUnit::kCpuAttention] += cpu_s;
    }
    return done += RunPostponed();
  }

  UnitSeconds RunPostponed() {
    if (!postponed_) return {};
    const auto [at, units] = *std::exchange(postponed_, std::nullopt);
    const double waits_s = CpuDone(at) - mover_.now_s();
    if (waits_s > 0.0) {
      const double waited_s = mover_.Compute(at, waits_s);
      pass_.parts[ComputePart::kAttention] += waited_s;
      pass_.compute_s += waited_s;
    }
    return Compute(at, units);
  }

  // Time at which the CPU has attended to the cell's batch.
  double& CpuDone(const Cursor& at) {
    const auto batch = static_cast<std::size_t>(at.batch);
    if (cpu_done_s_.size() <= batch) cpu_done_s_.resize(batch + 1);
    return cpu_done_s_[batch];
  }

  UnitSeconds UnitsOf(const Cursor& at) const {
    const BatchLoad& load = LoadAt(at);
    UnitSeconds units = model_->Compute(at.layer, load);
    const PlannedLayer& layer = plan_.layers[static_cast<std::size_t>(at.layer)];
    const bool is_first = num_passes_ == 0 && at.batch == 0;
    if (is_first && prefix_load_.tokens > 0 && layer.part != ComputePart::kHead)
      units += model_->Compute(at.layer, prefix_load_);
    if (walked_.blocks.size() == 1 && layer.attends) {
      const PerTier<KvLoad>& kv = load.KvOf(plan_, layer.decoder_layer);
      units[CostUnit::kMemory] += FirstTouchSeconds(plan_, model_->rates(), kv);
    }
    return units;
  }

  // The time that a cell's units take, links beside them; choosing tokens is the last of it.
  UnitSeconds Compute(const Cursor& at, UnitSeconds units) {
    const double alone_s = units.total_s();
    const double stretch = alone_s > 0.0 ? mover_.Compute(at, alone_s) / alone_s : 1.0;
    for (const CostUnit unit : kAllCostUnits) units[unit] *= stretch;
    const ComputePart part = plan_.layers[static_cast<std::size_t>(at.layer)].part;
    pass_.parts[part] += units.total_s() - units[CostUnit::kSampling];
    pass_.parts[ComputePart::kSampling] += units[CostUnit::kSampling];
    pass_.compute_s += units.total_s() - units[CostUnit::kSampling];
    return units;
  }

  // Adds the pass's time, what it waited for and what it moved.
  void AddTimes() {
    const WaitTotals& waits = mover_.waits();
    const PerLink<LinkTotals>& links = mover_.links();
    pass_.seconds = mover_.now_s() - pass_begin_s_;
    pass_.waits = waits - waits_before_;
    for (const Link link : kAllLinks) pass_.links[link] = links[link] - links_before_[link];
    pass_begin_s_ = mover_.now_s();
    waits_before_ = waits;
    links_before_ = links;
  }

  const Plan& plan_;
  const SimOptions& options_;
  RequestSource& requests_;
  int64_t stride_;
  const WorkOrder& order_;
  CostModel prefill_model_;
  CostModel decode_model_;
  Composer composer_;
  SimMover mover_;
  std::vector<SimBatch> batches_;  // of the block that is walked
  std::vector<BatchLoad> loads_;   // [batch], of the pass
  const BatchLoad no_load_;        // of the weights that come before the first block
  const BatchLoad prefix_load_;    // computed with the first batch
  const CostModel* model_ = &prefill_model_;
  PhaseTotals pass_;
  UnitSeconds units_;
  int64_t stretch_ = 1;  // of the pass
  int64_t num_passes_ = 0;
  int64_t decoding_rows_ = 0;  // of the pass
  Walked walked_;
  double pass_begin_s_ = 0.0;
  WaitTotals waits_before_;
  PerLink<LinkTotals> links_before_;
  std::optional<Postponed> postponed_;
  double cpu_free_s_ = 0.0;         // when the CPU has attended to all that it was given
  std::vector<double> cpu_done_s_;  // [batch]
};

bool AllAlike(const Workload& work) {
  return std::ranges::all_of(work.sample,
                             [&](const RequestShape& row) { return row == work.sample.front(); });
}

WholeWalk SumOf(Walked walked) {
  WholeWalk sum;
  for (const Totals& block : walked.blocks) Add(block, 1.0, sum.totals);
  sum.course = std::move(walked.course);
  return sum;
}

// Choice of the requests that are walked, and the totals of all of them. Lifetime: the members
// outlive it.
struct Walk {
  const Plan& plan;
  const Workload& work;
  const WorkOrder& order;
  const SimOptions& options;

  WholeWalk Run() const {
    if (options.walk_all) return SumOf(Blocks(work.num_requests, options));
    return AllAlike(work) ? AlikeRows() : OtherRows();
  }

 private:
  // The first `rows` requests, block after block.
  Walked Blocks(int64_t rows, const SimOptions& how) const {
    const int64_t num_blocks = DivideUp(rows, plan.BlockRows());
    const int64_t pass_cells = plan.num_batches * std::ssize(plan.layers);
    const int64_t cells = num_blocks * work.longest.max_new_tokens * pass_cells;
    SampledRequests requests(work, rows);
    return Simulator(plan, order, how, requests, cells / how.max_cells + 1).Run();
  }

  // Two full blocks, of which the second stands for those that follow, and the rest.
  WholeWalk AlikeRows() const {
    const int64_t more_blocks =
        std::max<int64_t>(0, work.num_requests / plan.BlockRows() - kBlocksOfAlikeRows);
    const Walked walked = Blocks(work.num_requests - more_blocks * plan.BlockRows(), options);
    WholeWalk whole = SumOf(walked);
    if (more_blocks == 0) return whole;
    const auto times = static_cast<double>(more_blocks);
    Add(walked.blocks[1], times, whole.totals);
    const CoursePoint block = Sum(walked.EndOf(1), walked.EndOf(0), -1.0);
    Lengthen(walked.BeginOf(2), Sum({}, block, times), whole.course);
    return whole;
  }

  // The rows that follow are like the second half of those that are walked: what the whole takes
  // beyond the first half, which begins and ends in the same way.
  WholeWalk OtherRows() const {
    const int64_t half = kBlocksOfOtherRows * plan.BlockRows();
    const int64_t rows = std::min(work.num_requests, 2 * half);
    WholeWalk whole = SumOf(Blocks(rows, options));
    if (rows == work.num_requests) return whole;
    SimOptions untraced = options;
    untraced.sink = nullptr;
    const WholeWalk first_half = SumOf(Blocks(half, untraced));
    const double more = static_cast<double>(work.num_requests - rows) / static_cast<double>(half);
    const Totals both_halves = whole.totals;
    Add(both_halves, more, whole.totals);
    Add(first_half.totals, -more, whole.totals);
    const CoursePoint second = Sum(whole.course.back(), first_half.course.back(), -1.0);
    Lengthen(whole.course.size() / 2, Sum({}, second, more), whole.course);
    return whole;
  }
};

std::string BoundBy(const Plan& plan, const Totals& totals, const WorkOrder& order) {
  std::string name = "nothing";
  double most_s = 0.0;
  for (const Link link : kAllLinks) {
    const double busy_s = totals.prefill.links[link].busy_s + totals.decode.links[link].busy_s;
    if (busy_s <= most_s) continue;
    most_s = busy_s;
    name = LinkName(link);
  }
  // CPU attention beside a GPU goes on by itself; elsewhere it is one of the computes.
  UnitSeconds computes = totals.units;
  const double beside_s =
      order.attends_beside ? std::exchange(computes[CostUnit::kCpuAttention], 0.0) : 0.0;
  if (std::max(beside_s, computes.total_s()) < most_s) return name;
  if (beside_s > computes.total_s()) return CostUnitName(CostUnit::kCpuAttention, plan.device());
  const CostUnit unit = *std::ranges::max_element(
      kAllCostUnits, {}, [&](CostUnit candidate) { return computes[candidate]; });
  return CostUnitName(unit, plan.device());
}

SimResult Summarize(const Plan& plan, const Workload& work, WholeWalk whole,
                    const WorkOrder& order) {
  SimResult result;
  const Totals& totals = whole.totals;
  Trace& trace = result.trace;
  trace.prefill = totals.prefill;
  trace.decode = totals.decode;
  trace.num_blocks = totals.num_blocks;
  trace.kv_bytes = plan.KvBytes();
  trace.slots_per_row = plan.MostHeadSlots(work.longest.slots());
  trace.largest_keep = plan.MostRunKeep(work.longest.slots());
  for (const Tier tier : kAllTiers) trace.peak_bytes[tier] = plan.PlannedBytes(tier);
  result.units = totals.units;
  const int64_t generated = trace.prefill.generated_tokens + trace.decode.generated_tokens;
  Prediction& prediction = result.prediction;
  prediction.prefill_s = trace.prefill.seconds;
  prediction.decode_s = trace.decode.seconds;
  prediction.generated_tokens_per_s = static_cast<double>(generated) / prediction.total_s();
  prediction.bound_by = BoundBy(plan, totals, order);
  prediction.course = std::move(whole.course);
  for (const Link link : kAllLinks) {
    prediction.link_busy_s[link] =
        trace.prefill.links[link].busy_s + trace.decode.links[link].busy_s;
  }
  for (const ComputePart part : kAllComputeParts) {
    prediction.parts[part] = trace.prefill.parts[part] + trace.decode.parts[part];
  }
  return result;
}

}  // namespace

SimResult Simulate(const Plan& plan, const Workload& whole, const SimOptions& options) {
  const Workload work = OwnWork(plan, whole);
  const WorkOrder order = OrderOf(plan, options);
  return Summarize(plan, work, Walk{plan, work, order, options}.Run(), order);
}

}  // namespace spillway
