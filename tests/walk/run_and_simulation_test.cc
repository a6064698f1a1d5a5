// A run and its simulation are one walk: on random workloads and policies the same rows run in the
// same passes and places, and the same bytes cross each link.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/compute/host_device.h"
#include "src/simulate/simulate.h"
#include "tests/policies/policy_test_util.h"
#include "tests/run/dummy_run.h"
#include "tests/run/list_job.h"
#include "tests/workload_of.h"

namespace spillway {
namespace {

// Cases, in shares that can run side by side.
constexpr uint32_t kNumCases = 1'000;
constexpr uint32_t kNumShares = 4;
constexpr TokenId kFirstToken = 3;  // of request 0; request n is made of token n + 3 alone

// A row in a pass, which counts over the whole run.
struct PlacedRow {
  int64_t pass = 0;
  int64_t batch = 0;
  int64_t request = 0;
  int64_t num_past = 0;
  RowPlaces places;

  bool operator==(const PlacedRow&) const = default;
};

std::string TextOf(const PlacedRow& row) {
  std::string text = fmt::format(
      "pass {} batch {} request {} after {} tokens: KV on {}, states on {}, log place {}", row.pass,
      row.batch, row.request, row.num_past, TierName(row.places.kv_tier),
      TierName(row.places.hidden_tier), row.places.log_place);
  for (const KvPlace& place : row.places.kv) {
    text += fmt::format(", slots {}+{}", place.slot_begin, place.num_slots);
  }
  return text;
}

// Results of a run or of its simulation, which are compared.
struct Walked {
  std::vector<PlacedRow> rows;  // in order of passes, batches, requests
  PerLink<int64_t> bytes;
  int64_t num_blocks = 0;
  int64_t num_passes = 0;

  void SortRows() {
    std::ranges::sort(rows, {}, [](const PlacedRow& row) {
      return std::tuple(row.pass, row.batch, row.request);
    });
  }
};

// Notes which rows it is given where. Each row's next token is the one before, so that tokens name
// requests. `real`, null where nobody reads what is computed, gives the KV that a log takes apart.
class NotingExecutor final : public Executor {
 public:
  NotingExecutor(const Plan& plan, std::unique_ptr<Executor> real, std::vector<PlacedRow>& rows)
      : plan_(plan), real_(std::move(real)), rows_(rows) {}

  void Compute(const Cursor& at, const PackedBatch& batch, const CellPlaces& places) override {
    if (at.layer == 0) Note(at, batch);
    if (real_ != nullptr) real_->Compute(at, batch, places);
    if (at.layer + 1 < std::ssize(plan_.layers)) return;
    const auto vocab = static_cast<std::size_t>(plan_.shape.vocab_size);
    const auto num_logits = static_cast<std::size_t>(batch.head.size());
    logits_.assign(num_logits * vocab, 0.0F);
    for (std::size_t index = 0; index < num_logits; ++index) {
      const auto wanted = batch.Wanted(batch.head.begin + static_cast<int64_t>(index));
      const TokenId token = batch.tokens[static_cast<std::size_t>(wanted.token)];
      logits_[index * vocab + static_cast<std::size_t>(token)] = 1.0F;
    }
  }
  std::span<float> Logits() override {
    if (real_ != nullptr) real_->Logits();
    return logits_;
  }

 private:
  void Note(const Cursor& at, const PackedBatch& batch) {
    // A block begins with all its batches.
    if (at.pass == 0 && at.batch == 0) first_pass_ = num_passes_;
    num_passes_ = first_pass_ + at.pass + 1;
    for (std::size_t index = 0; index < batch.rows.size(); ++index) {
      const PackedRow& row = batch.rows[index];
      const int64_t last = row.token_offset + row.num_new - 1;
      PlacedRow placed = {first_pass_ + at.pass,
                          at.batch,
                          batch.tokens[static_cast<std::size_t>(last)] - kFirstToken,
                          row.num_past,
                          {}};
      placed.places = {row.kv_tier, batch.HiddenTierOf(row.token_offset), {}, row.log_place};
      for (int64_t kv_class = 0; kv_class < batch.num_kv_classes; ++kv_class) {
        placed.places.kv.push_back(batch.KvPlaceOf(index, kv_class));
      }
      rows_.push_back(placed);
    }
  }

  const Plan& plan_;
  std::unique_ptr<Executor> real_;
  std::vector<PlacedRow>& rows_;
  std::vector<float> logits_;
  int64_t first_pass_ = 0;
  int64_t num_passes_ = 0;
};

// A request for each row of the sample.
std::vector<Request> RequestsOf(const Workload& work) {
  std::vector<Request> requests;
  for (const RequestShape& row : work.sample) {
    const auto number = static_cast<TokenId>(requests.size());
    Request& request = requests.emplace_back();
    request.line = std::ssize(requests);
    request.prompt.assign(static_cast<std::size_t>(row.prompt_tokens), kFirstToken + number);
    std::ranges::copy(work.prefix, request.prompt.begin());
    request.sampling.max_tokens = row.max_new_tokens;
    request.sampling.ignore_eos = true;
  }
  return requests;
}

struct Case {
  Workload work;
  Policy policy;
  Tier device = Tier::kCpu;
  Overlap overlap = Overlap::kOn;
  double kept_slots_frac = 1.0;  // of what the plan has for a batch: rows then wait for gaps
};

class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}

  int64_t Between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }
  bool Yes(int percent) { return Between(1, 100) <= percent; }

  // Whole tiers, or a mixture.
  PerTier<double> Shares(Tier device) {
    const bool has_gpu = device == Tier::kGpu;
    if (Yes(40)) return AllOn(Yes(40) ? device : Yes(50) ? Tier::kCpu : Tier::kDisk);
    const auto gpu = static_cast<double>(has_gpu ? Between(0, 10) : 0) / 10.0;
    const double cpu = (1.0 - gpu) * static_cast<double>(Between(0, 10)) / 10.0;
    return testing::Share(gpu, cpu);
  }

 private:
  std::mt19937 random_;
};

KvBudget RandomBudget(Dice& dice) {
  KvBudget budget;
  budget.kept = dice.Yes(50) ? TokenAmount{0.1 * static_cast<double>(dice.Between(1, 9)), 0}
                             : TokenAmount{0.0, dice.Between(2, 16)};
  return budget;
}

KvPolicy RandomKv(Dice& dice) {
  KvPolicy kv;
  if (dice.Yes(40)) return kv;
  kv.kind = dice.Yes(70) ? KvPolicyKind::kH2o : KvPolicyKind::kWindow;
  kv.budget = RandomBudget(dice);
  if (kv.kind == KvPolicyKind::kWindow) kv.num_sinks = dice.Between(0, 3);
  if (dice.Yes(35)) kv.layer_budgets = {RandomBudget(dice), RandomBudget(dice)};
  if (kv.kind != KvPolicyKind::kH2o || !kv.layer_budgets.empty() || dice.Yes(50)) return kv;
  for (int layer = 0; layer < 2; ++layer) {
    std::vector<KvBudget>& heads = kv.head_budgets.emplace_back();
    for (int head = 0; head < 4; ++head) heads.push_back(RandomBudget(dice));
  }
  return kv;
}

Workload RandomWork(Dice& dice) {
  const int64_t num_requests = dice.Between(1, 18);
  const int64_t most_prompt = dice.Between(1, 16);
  const int64_t most_new = dice.Between(1, 8);
  std::vector<RequestShape> rows;
  for (int64_t row = 0; row < num_requests; ++row) {
    rows.push_back({dice.Between(1, most_prompt), dice.Between(1, most_new)});
  }
  return WorkOf(std::move(rows));
}

void AddPrefix(Workload& work) {
  work.prefix.assign(kPrefixStep, 1);
  for (RequestShape& row : work.sample) row.prompt_tokens += kPrefixStep;
  work.longest.prompt_tokens += kPrefixStep;
}

Case RandomCase(uint32_t seed) {
  Dice dice(seed);
  Case random;
  random.work = RandomWork(dice);
  random.device = dice.Yes(60) ? Tier::kGpu : Tier::kCpu;
  random.overlap = dice.Yes(70) ? Overlap::kOn : Overlap::kOff;
  Policy& policy = random.policy;
  policy.weight_frac = dice.Yes(60) ? AllOn(random.device) : dice.Shares(random.device);
  policy.kv_frac = dice.Shares(random.device);
  policy.activation_frac = dice.Shares(random.device);
  policy.gpu_batch_size = dice.Between(1, 4);
  policy.num_gpu_batches = dice.Between(1, 3);
  policy.cpu_attention = random.device == Tier::kGpu && dice.Yes(25);
  if (policy.cpu_attention) {  // of all KV or none
    policy.kv_frac[Tier::kCpu] += policy.kv_frac[Tier::kGpu];
    policy.kv_frac[Tier::kGpu] = 0.0;
  }
  policy.kv_bits = dice.Yes(75)   ? KvBits(16)
                   : dice.Yes(30) ? KvBits(8)
                   : dice.Yes(50) ? KvBits(8, 4)
                                  : KvBits(4);
  policy.kv = RandomKv(dice);
  if (dice.Yes(30)) policy.most_log_passes = dice.Between(1, 4);
  if (dice.Yes(50)) random.kept_slots_frac = 0.1 * static_cast<double>(dice.Between(4, 9));
  if (dice.Yes(30)) AddPrefix(random.work);
  return random;
}

std::string TextOf(uint32_t seed, const Case& of) {
  const auto shares = [](const PerTier<double>& frac) {
    return fmt::format("{:.2f}/{:.2f}/{:.2f}", frac[Tier::kGpu], frac[Tier::kCpu],
                       frac[Tier::kDisk]);
  };
  std::string text = fmt::format(
      "seed {}: on {}{}, weights {}, KV {}, states {}, {} rows x {} batches, {} bits, KV {}{}, "
      "{} of the slots; prefix {}, requests",
      seed, TierName(of.device), of.overlap == Overlap::kOn ? "" : " without overlap",
      shares(of.policy.weight_frac), shares(of.policy.kv_frac), shares(of.policy.activation_frac),
      of.policy.gpu_batch_size, of.policy.num_gpu_batches, of.policy.kv_bits.key,
      KvPolicyName(of.policy.kv.kind), of.policy.cpu_attention ? ", CPU attention" : "",
      of.kept_slots_frac, of.work.prefix.size());
  for (const RequestShape& row : of.work.sample) {
    text += fmt::format(" {}+{}", row.prompt_tokens, row.max_new_tokens);
  }
  return text;
}

class RunAndSimulationTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  Plan PlanOf(const Case& of) const {
    Machine machine = testing::T4();
    machine.device = of.device;
    Plan plan = dummy_.PlanFor(machine, of.work, of.policy);
    for (std::size_t index = 0; index < plan.kv_classes.size(); ++index) {
      for (const Tier tier : kAllTiers) {
        // Room for the longest row stays where there was room.
        int64_t& slots = plan.kv_classes[index].slots[tier];
        const int64_t longest =
            plan.RowSlots(tier, static_cast<int64_t>(index), plan.longest.slots());
        const auto kept = static_cast<int64_t>(of.kept_slots_frac * static_cast<double>(slots));
        slots = std::min(slots, std::max(longest, kept));
      }
    }
    return plan;
  }

  Walked Run(const Case& of, const Plan& plan) {
    Walked walked;
    HostDevice device;
    ListJob job(RequestsOf(of.work));
    DummyRunOptions options;
    options.overlap = of.overlap;
    options.wrap = [&](std::unique_ptr<Executor> real) {
      if (!plan.kv_log.exists()) real.reset();
      return std::make_unique<NotingExecutor>(plan, std::move(real), walked.rows);
    };
    const Trace trace = dummy_.Run(plan, device, job, options);
    EXPECT_TRUE(job.failed.empty()) << job.failed.begin()->second;
    walked.num_blocks = trace.num_blocks;
    walked.num_passes = trace.prefill.passes + trace.decode.passes;
    for (const Link link : kAllLinks) {
      walked.bytes[link] = trace.prefill.links[link].bytes + trace.decode.links[link].bytes;
    }
    walked.SortRows();
    return walked;
  }

  DummyRun dummy_{SmallOpt(2), 1, MemoryRoot()};
};

// Bytes without those of weights that were asked for ahead, for a pass that never came; and without
// what a GPU's executor, not the mover, passes to the CPU that attends.
Walked Simulated(const Case& of, const Plan& plan) {
  Walked walked;
  std::vector<TraceSpan> spans;
  SimOptions options;
  options.overlap = of.overlap;
  options.walk_all = true;
  options.max_cells = int64_t{1} << 40;
  options.sink = [&](const TraceEvent& event) {
    if (const auto* span = std::get_if<TraceSpan>(&event)) spans.push_back(*span);
  };
  options.on_pass = [&](int64_t pass, std::span<const SimBatch> batches) {
    for (std::size_t batch = 0; batch < batches.size(); ++batch) {
      for (std::size_t group = 0; group < batches[batch].groups().size(); ++group) {
        for (const ComposedRow& row : batches[batch].RowsOf(group)) {
          walked.rows.push_back({pass, static_cast<int64_t>(batch), row.request.number,
                                 batches[batch].groups()[group].num_past, row.places});
        }
      }
    }
  };
  const Trace trace = Simulate(plan, of.work, options).trace;
  walked.num_blocks = trace.num_blocks;
  walked.num_passes = trace.prefill.passes + trace.decode.passes;
  for (const TraceSpan& span : spans) {
    const TraceSubject subject = span.label.subject;
    if (subject == TraceSubject::kWeights && span.label.cell.pass >= walked.num_passes) continue;
    for (const Link link : kAllLinks) {
      const bool of_executor =
          subject == TraceSubject::kKv && link == Link::kGpuToCpu && of.policy.cpu_attention;
      if (span.lane == LaneOf(link) && !of_executor) walked.bytes[link] += span.bytes;
    }
  }
  walked.SortRows();
  return walked;
}

// Bytes of weights that a run has loaded ahead for a pass that never came.
PerLink<int64_t> AheadBytes(const Plan& plan, Overlap overlap) {
  PerLink<int64_t> bytes;
  if (overlap == Overlap::kOff) return bytes;
  for (int64_t layer = 0; layer < plan.weight_lookahead; ++layer) {
    const PerLink<int64_t> of_layer = WeightBytes(plan, layer);
    for (const Link link : kAllLinks) bytes[link] += of_layer[link];
  }
  return bytes;
}

void ExpectSame(const Walked& run, const Walked& simulated, const PerLink<int64_t>& ahead) {
  EXPECT_EQ(run.num_blocks, simulated.num_blocks);
  EXPECT_EQ(run.num_passes, simulated.num_passes);
  const auto [in_run, in_simulation] = std::ranges::mismatch(run.rows, simulated.rows);
  if (in_run != run.rows.end() || in_simulation != simulated.rows.end()) {
    ADD_FAILURE() << "run: " << (in_run == run.rows.end() ? "ends" : TextOf(*in_run))
                  << "\nsimulation: "
                  << (in_simulation == simulated.rows.end() ? "ends" : TextOf(*in_simulation));
  }
  for (const Link link : kAllLinks) {
    EXPECT_GE(run.bytes[link], simulated.bytes[link]) << LinkName(link);
    EXPECT_LE(run.bytes[link], simulated.bytes[link] + ahead[link]) << LinkName(link);
  }
}

TEST_P(RunAndSimulationTest, ComposeAlikeAndMoveAsMuch) {
  for (uint32_t seed = GetParam(); seed < kNumCases && !HasFailure(); seed += kNumShares) {
    const Case random = RandomCase(seed);
    SCOPED_TRACE(TextOf(seed, random));
    const Plan plan = PlanOf(random);
    ExpectSame(Run(random, plan), Simulated(random, plan), AheadBytes(plan, random.overlap));
  }
}

INSTANTIATE_TEST_SUITE_P(Shares, RunAndSimulationTest, ::testing::Range(0U, kNumShares));

}  // namespace
}  // namespace spillway
