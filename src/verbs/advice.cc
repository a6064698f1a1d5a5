#include "src/verbs/advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "spillway/round.h"
#include "src/base/host.h"
#include "src/base/size_text.h"
#include "src/report/progress_text.h"  // DurationText
#include "src/verbs/policy_for.h"
#include "src/verbs/prediction_for.h"

namespace spillway {
namespace {

constexpr double kLeastSeconds = 60.0;
// Share of the time, or of the bytes, that a change has to leave at most to be worth a word.
constexpr double kWorthwhileFrac = 0.9;
constexpr double kManyReadsFrac = 0.75;

// Something that could be otherwise.
struct Change {
  std::string name;
  Config config;
  Machine machine;
  ModelShape shape;
  bool keeps_answers = true;
};

// "gpu matmul" -> "multiplying matrices on the GPU"
std::string BoundText(const std::string& bound_by) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kLinks = {
      {{"disk_read", "reading from the disk"},
       {"disk_write", "writing to the disk"},
       {"cpu_to_gpu", "copying to the GPU"},
       {"gpu_to_cpu", "copying from the GPU"}}};
  for (const auto& [name, text] : kLinks) {
    if (bound_by == name) return std::string(text);
  }
  const std::string where = bound_by.starts_with("gpu") ? "the GPU" : "the CPU";
  const std::string unit = bound_by.substr(bound_by.find(' ') + 1);
  if (unit == "matmul") return "multiplying matrices on " + where;
  if (unit == "memory") return "reading weights from the memory of " + where;
  if (unit == "attention") return "attention on " + where;
  return bound_by;
}

std::string MibText(int64_t bytes) { return fmt::format("{}MiB", DivideUp(bytes, 1 << 20)); }

// More than this host has free is no flag that would be taken.
std::string MemoryText(const Config& config, int64_t cap) {
  const bool is_this_host = !(config.machine && PlansOnly(config.verb));
  if (is_this_host && cap > AvailableMemoryBytes() / 10 * 9)
    return fmt::format("twice the CPU memory, {}", SizeText(cap));
  return "--cpu-memory " + MibText(cap);
}

// A cap of twice as much; nothing where it would change nothing.
std::optional<Change> TwiceTheMemory(const Setting& setting, const PlannedRun& planned) {
  const Plan& plan = planned.plan;
  const bool is_short =
      plan.arena_bytes[Tier::kDisk] > 0 || plan.BlockRows() < planned.work.num_requests;
  if (!is_short) return std::nullopt;
  Change change = {"", setting.config, setting.machine, setting.model.shape};
  int64_t& cap = change.machine.cap_bytes[Tier::kCpu];
  cap *= 2;
  change.config.cpu_memory_bytes = cap;
  change.name = MemoryText(setting.config, cap);
  return change;
}

// The plan with the change; nullopt where it does not fit.
std::optional<Plan> PlanWith(const Change& change, const Setting& setting, const Workload& work) {
  try {
    const Model model = MakeModel(change.shape);
    const Policy policy = PolicyFor(change.config, model, change.machine, work, setting.needs);
    return MakePlan(model, change.machine, work, policy, setting.needs);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Weights of so many bits; nothing where they have no more, or are a store's.
std::optional<Change> WeightBits(const Setting& setting, int bits) {
  const ModelShape& shape = setting.model.shape;
  if (!setting.model.store.empty() || shape.weight_bits <= bits) return std::nullopt;
  Change change = {fmt::format("--weight-bits {} (other answers)", bits), setting.config,
                   setting.machine, shape, false};
  change.config.weight_bits = change.shape.weight_bits = bits;
  DropPublishedCodes(change.shape);
  return change;
}

// Weights of 8 bits; of 4, where some of 8 would still lie on the disk.
std::optional<Change> FewerWeightBits(const Setting& setting, const Workload& work) {
  std::optional<Change> eight = WeightBits(setting, 8);
  std::optional<Change> four = WeightBits(setting, 4);
  const std::optional<Plan> plan = eight ? PlanWith(*eight, setting, work) : std::nullopt;
  const bool is_off_disk = plan && plan->weight_bytes[Tier::kDisk] == 0;
  return is_off_disk || !four ? eight : four;
}

std::vector<Change> ChangesOf(const Setting& setting, const PlannedRun& planned) {
  const Change as_is = {"", setting.config, setting.machine, setting.model.shape};
  std::vector<Change> changes;
  if (auto twice = TwiceTheMemory(setting, planned)) changes.push_back(std::move(*twice));
  if (planned.plan.arena_bytes[Tier::kDisk] > 0) {
    Change& change = changes.emplace_back(as_is);
    change.name = "a disk twice as fast";
    MachineRates& rates = change.machine.rates;
    rates.link_bytes_per_s[Link::kDiskRead] *= 2.0;
    rates.link_bytes_per_s[Link::kDiskWrite] *= 2.0;
    rates.store_bytes_per_s *= 2.0;
  }
  // Changes of the answers, the mildest first.
  if (auto eight = WeightBits(setting, 8)) changes.push_back(std::move(*eight));
  if (!as_is.config.kv_bits && !as_is.config.kv_dtype) {
    Change& change = changes.emplace_back(as_is);
    change.name = "--kv-bits 8,4 (other answers)";
    change.keeps_answers = false;
    change.config.kv_bits = KvBits(8, 4);
  }
  if (auto four = WeightBits(setting, 4)) changes.push_back(std::move(*four));
  const Config& config = as_is.config;
  if (config.gpu_batch_size || config.num_gpu_batches || config.percent) {
    Change& change = changes.emplace_back(as_is);
    change.name = "leaving block and placement to the search";
    change.config.gpu_batch_size = change.config.num_gpu_batches = std::nullopt;
    change.config.percent = std::nullopt;
  }
  return changes;
}

// The change that saves most, of those that keep the answers or of the others.
struct BestChange {
  std::string name;  // empty: none saves anything
  double seconds = 0.0;

  // Whether it saves enough beside a run, or another change, of so many seconds.
  bool IsWorth(double than_s) const { return !name.empty() && seconds < kWorthwhileFrac * than_s; }
};

std::string TimeAdvice(const Setting& setting, const PlannedRun& planned,
                       const Prediction& predicted) {
  const double as_is_s = predicted.total_s();
  std::vector<std::string> tried;
  BestChange same = {"", as_is_s};
  BestChange other = {"", as_is_s};
  for (const Change& change : ChangesOf(setting, planned)) {
    const std::optional<Plan> plan = PlanWith(change, setting, planned.work);
    if (!plan) continue;
    tried.push_back(change.name);
    BestChange& best = change.keeps_answers ? same : other;
    const double seconds = PredictionFor(change.config, *plan, planned.work)->total_s();
    // Answers that are further off than those of a change worth a word have to be worth it too.
    const bool stands = !change.keeps_answers && best.IsWorth(as_is_s);
    if (seconds < (stands ? kWorthwhileFrac : 1.0) * best.seconds) best = {change.name, seconds};
  }
  const std::string text = fmt::format("bound by {}", BoundText(predicted.bound_by));
  if (tried.empty()) return text + "\n";
  const BestChange& first = same.IsWorth(as_is_s) ? same : other;
  if (!first.IsWorth(as_is_s)) {
    return text + fmt::format("; {} would {}save less than a tenth\n", fmt::join(tried, ", "),
                              tried.size() == 1 ? "" : "each ");
  }
  const bool goes_on = &first == &same && other.IsWorth(same.seconds);
  return text + fmt::format("; most would help {}: {} in place of {}{}\n", first.name,
                            DurationText(first.seconds), DurationText(as_is_s),
                            goes_on
                                ? fmt::format("; {}: {}", other.name, DurationText(other.seconds))
                                : "");
}

// Bytes of weights that are read from the disk if every row takes all its tokens.
double WeightBytesRead(const Plan& plan, const Workload& work) {
  int64_t passes = 0;  // of the sample's blocks, each of which goes on to its longest answer
  const int64_t num_sampled = std::ssize(work.sample);
  for (int64_t begin = 0; begin < num_sampled; begin += plan.BlockRows()) {
    const auto rows = std::span(work.sample).subspan(static_cast<std::size_t>(begin));
    int64_t longest = 1;
    for (const RequestShape& row :
         rows.first(std::min(rows.size(), static_cast<std::size_t>(plan.BlockRows()))))
      longest = std::max(longest, row.max_new_tokens);
    passes += longest;
  }
  const auto blocks = static_cast<double>(DivideUp(work.num_requests, plan.BlockRows()));
  const auto sampled_blocks = static_cast<double>(DivideUp(num_sampled, plan.BlockRows()));
  return static_cast<double>(passes) * blocks / sampled_blocks *
         static_cast<double>(plan.weight_bytes[Tier::kDisk]);
}

// "; with --cpu-memory 16384MiB: none"; empty where the change would spare few of `bytes`.
std::string FewerReadsText(const std::optional<Change>& change, const Setting& setting,
                           const Workload& work, double bytes) {
  const std::optional<Plan> plan = change ? PlanWith(*change, setting, work) : std::nullopt;
  if (!plan) return "";
  const double fewer = WeightBytesRead(*plan, work);
  if (fewer > kManyReadsFrac * bytes) return "";
  return fmt::format("; with {}: {}", change->name,
                     fewer == 0.0 ? "none" : SizeText(static_cast<int64_t>(fewer)));
}

std::string ReadAdvice(const Setting& setting, const PlannedRun& planned) {
  const double bytes = WeightBytesRead(planned.plan, planned.work);
  if (bytes == 0.0) return "";
  std::string ways;
  for (const auto& change :
       {TwiceTheMemory(setting, planned), FewerWeightBits(setting, planned.work)})
    ways += FewerReadsText(change, setting, planned.work, bytes);
  if (ways.empty()) return "";
  return fmt::format("weights are read from the disk again and again, {} in all{}\n",
                     SizeText(static_cast<int64_t>(bytes)), ways);
}

}  // namespace

std::string AdviceText(const Setting& setting, const PlannedRun& planned,
                       const std::optional<Prediction>& predicted) {
  if (planned.work.num_requests == 0) return "";
  if (!predicted) return ReadAdvice(setting, planned);
  return predicted->total_s() < kLeastSeconds ? "" : TimeAdvice(setting, planned, *predicted);
}

}  // namespace spillway
