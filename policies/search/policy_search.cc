#include "policies/search/policy_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "policies/cost/cost_model.h"
#include "spillway/error.h"
#include "src/base/stop_signal.h"

namespace spillway {
namespace {

constexpr std::array<int64_t, 24> kBatchSizes = {1,  2,  4,   8,   12,  16,  20,  24,
                                                 28, 32, 36,  40,  44,  48,  56,  64,
                                                 80, 96, 112, 128, 160, 192, 256, 384};
constexpr std::array<int64_t, 22> kNumBatches = {1,  2,  3,  4,  5,  6,  8,  10, 12, 14, 16,
                                                 18, 20, 24, 28, 32, 40, 48, 64, 80, 96, 128};

// Rows of a block beyond which nothing is gained: at 4096 rows even a disk's weights cost next to
// nothing a row.
constexpr int64_t kMaxBlockRows = 4096;

constexpr std::size_t kNumFinalists = 16;
constexpr std::size_t kMaxTries = 4 * kNumFinalists;  // some drafts do not survive rounding
constexpr std::size_t kNumWithLongChunks = 4;
constexpr std::size_t kNumRefined = 12;
constexpr std::size_t kNumOfEach = 4;  // drafts of a storage; their best may not be its best plan
constexpr std::size_t kNumRefinedOfEach = 6;
constexpr std::size_t kNumBest = 10;

// Difference of rates below which predictions cannot be told apart.
constexpr double kAsFast = 0.01;

// Tightened caps after which a placement that still does not fit is given up.
constexpr int kMaxRoundings = 4;

struct BlockShape {
  int64_t batch_size = 1;
  int64_t num_batches = 1;
  bool cpu_attention = false;
  std::size_t storage = 0;  // in SearchInput
  int64_t prefill_chunk = kPrefillChunk;

  auto operator<=>(const BlockShape&) const = default;
};

struct Draft {
  BlockShape block;
  double tokens_per_s = 0.0;  // by its linear program
};

class Search {
 public:
  explicit Search(const SearchInput& input) : input_(input) {}

  SearchResult Run() {
    std::vector<Draft> drafts = Drafts();
    if (drafts.empty()) {
      result_.shortage = LpOf(Smallest()).ShortageOf(LimitsOf(Smallest()));
      return std::move(result_);
    }
    std::ranges::stable_sort(drafts, std::greater<>(), &Draft::tokens_per_s);
    TryBestOfEach(drafts);
    const std::size_t most = result_.best.size() + kNumFinalists;
    const std::size_t most_tries = tried_.size() + kMaxTries;
    for (const Draft& draft : drafts) {
      if (result_.best.size() == most || tried_.size() == most_tries) break;
      Try(draft.block);
    }
    TrySlowest(drafts);
    TryLongChunks();
    Refine();
    KeepBest();
    LeadWithMostBits();
    return std::move(result_);
  }

 private:
  // Gives each storage a place among the results. So it does, where requests begin alike, to
  // attention on the GPU and on the CPU beside it: one holds what they begin with once, the other
  // does not, and drafts of one may fill all places.
  void TryBestOfEach(const std::vector<Draft>& drafts) {
    const std::size_t num_storages = input_.storage.size();
    for (std::size_t storage = 0; num_storages > 1 && storage < num_storages; ++storage)
      TryBestOf(drafts, kNumOfEach,
                [&](const BlockShape& block) { return block.storage == storage; });
    if (input_.work.prefix.empty()) return;
    for (const bool beside : AttentionChoices())
      TryBestOf(drafts, 1, [&](const BlockShape& block) { return block.cpu_attention == beside; });
  }

  // Tries the drafts of a kind until so many of them are among the results.
  template <typename F>
  void TryBestOf(const std::vector<Draft>& drafts, std::size_t most, F is_of_kind) {
    const std::size_t before = result_.best.size();
    for (const Draft& draft : drafts) {
      if (is_of_kind(draft.block)) Try(draft.block);
      if (result_.best.size() == before + most) return;
    }
  }

  // Where no layout of the best drafts fits, tries the slowest ones: small blocks, for which the
  // linear program's memory is nearest to a layout's.
  void TrySlowest(const std::vector<Draft>& drafts) {
    const std::size_t most_tries = tried_.size() + kMaxTries;
    for (auto draft = drafts.rbegin(); draft != drafts.rend(); ++draft) {
      if (result_.feasible() || tried_.size() == most_tries) break;
      Try(draft->block);
    }
    if (!result_.feasible() && !input_.given.placement) TryWholeWeights(drafts.back().block);
  }

  // With all weights in one tier, whose staging is what the linear program takes it for.
  void TryWholeWeights(const BlockShape& block) {
    for (const Tier tier : kAllTiers) {
      PlacementLp::Limits limits = LimitsOf(block);
      limits.weights.emplace();
      (*limits.weights)[tier] = 1.0;
      LayOutWithin(block, std::move(limits));
    }
  }

  // Tries the best blocks with longer chunks of prompts: faster products on a GPU, for memory that
  // weights and KV could have.
  void TryLongChunks() {
    if (input_.given.prefill_chunk || input_.machine.device != Tier::kGpu) return;
    std::vector<BlockShape> blocks;
    for (std::size_t at = 0; at < std::min(kNumWithLongChunks, result_.best.size()); ++at) {
      blocks.push_back(BlockOf(result_.best[at]));
    }
    for (BlockShape& block : blocks) {
      block.prefill_chunk = kGpuPrefillChunk;
      Try(block);
    }
  }

  // The first of each storage, and of the others as many as there is room for.
  void KeepBest() {
    std::vector<Candidate> firsts;
    const auto is_first = [&](const Candidate& candidate) {
      return std::ranges::find(firsts, candidate.storage, &Candidate::storage) == firsts.end();
    };
    std::size_t room = kNumBest - std::min(kNumBest, input_.storage.size());
    std::vector<Candidate> kept;
    for (Candidate& candidate : result_.best) {
      if (is_first(candidate)) {
        firsts.push_back(candidate);
      } else if (room > 0) {
        --room;
      } else {
        continue;
      }
      kept.push_back(std::move(candidate));
    }
    result_.best = std::move(kept);
  }

  // Moves to the front, of those that are as fast as the best as far as a prediction can tell, the
  // one that is stored most exactly.
  void LeadWithMostBits() {
    if (!result_.feasible()) return;
    const auto bits = [](const Candidate& candidate) {
      const StorageChoice& storage = candidate.storage;
      const int bits = 2 * storage.weight_bits + storage.kv_bits.key + storage.kv_bits.value;
      return std::pair(-storage.loss(), bits);
    };
    const auto rate = [](const Candidate& candidate) {
      return candidate.prediction.generated_tokens_per_s;
    };
    const double least = (1.0 - kAsFast) * rate(result_.best.front());
    const auto slower =
        std::ranges::find_if(result_.best, [&](const auto& other) { return rate(other) < least; });
    const auto leader = std::ranges::max_element(result_.best.begin(), slower, std::less<>(), bits);
    std::rotate(result_.best.begin(), leader, std::next(leader));
  }

  std::vector<bool> AttentionChoices() const {
    if (input_.given.cpu_attention) return {*input_.given.cpu_attention};
    if (input_.machine.device == Tier::kCpu) return {false};
    const auto& placement = input_.given.placement;
    if (placement && SharesAttention(input_.machine, placement->kv)) return {false};
    return {false, true};
  }

  template <std::size_t size>
  std::vector<int64_t> Choices(const std::array<int64_t, size>& grid,
                               const std::optional<int64_t>& given, int64_t most) const {
    if (given) return {*given};
    std::vector<int64_t> choices;
    for (const int64_t value : grid) {
      if (value < most) choices.push_back(value);
    }
    choices.push_back(most);
    return choices;
  }

  int64_t MaxRows() const {
    return input_.endless ? kMaxBlockRows : std::min(kMaxBlockRows, input_.work.num_requests);
  }

  std::vector<int64_t> BatchSizes() const {
    return Choices(kBatchSizes, input_.given.gpu_batch_size,
                   std::min(MaxRows(), kBatchSizes.back()));
  }

  std::vector<int64_t> BatchCounts(int64_t batch_size) const {
    return Choices(kNumBatches, input_.given.num_gpu_batches,
                   std::min((MaxRows() + batch_size - 1) / batch_size, kNumBatches.back()));
  }

  BlockShape Smallest() const {
    return {input_.given.gpu_batch_size.value_or(1), input_.given.num_gpu_batches.value_or(1),
            input_.given.cpu_attention.value_or(false), 0, GivenChunk()};
  }

  int64_t GivenChunk() const { return input_.given.prefill_chunk.value_or(kPrefillChunk); }

  BlockShape BlockOf(const Candidate& candidate) const {
    const Policy& policy = candidate.policy;
    const auto storage =
        std::ranges::find(input_.storage, candidate.storage) - input_.storage.begin();
    return {policy.gpu_batch_size, policy.num_gpu_batches, policy.cpu_attention,
            static_cast<std::size_t>(storage), policy.prefill_chunk};
  }

  std::vector<Draft> Drafts() {
    std::vector<Draft> drafts;
    for (std::size_t storage = 0; storage < input_.storage.size(); ++storage) {
      for (const bool cpu_attention : AttentionChoices()) {
        for (const int64_t batch_size : BatchSizes()) {
          AddDrafts({batch_size, 1, cpu_attention, storage, GivenChunk()}, drafts);
        }
      }
    }
    return drafts;
  }

  // Adds a draft for each number of such batches.
  void AddDrafts(BlockShape block, std::vector<Draft>& drafts) {
    for (const int64_t num_batches : BatchCounts(block.batch_size)) {
      block.num_batches = num_batches;
      ThrowIfStopRequested();
      const auto answer = SolveLp(block, LimitsOf(block));
      if (!answer) return;  // more batches need more room
      drafts.push_back({block, DraftRate(block, answer->block_s)});
    }
  }

  // A last block that is not full moves the same weights for fewer rows: between its rows' share
  // and a whole block. Predictions are exact in this; a draft is not.
  double DraftRate(const BlockShape& block, double block_s) const {
    const auto rows = static_cast<double>(block.batch_size * block.num_batches);
    if (input_.endless) return rows / block_s;
    const auto requests = static_cast<double>(input_.work.num_requests);
    const double blocks = requests / rows;
    return requests / (0.5 * (blocks + std::ceil(blocks)) * block_s);
  }

  Policy PolicyOf(const BlockShape& block, const Placement& placement) const {
    Policy policy;
    policy.weight_frac = placement.weights;
    policy.kv_frac = placement.kv;
    policy.activation_frac = placement.activations;
    policy.gpu_batch_size = block.batch_size;
    policy.num_gpu_batches = block.num_batches;
    policy.cpu_attention = block.cpu_attention;
    policy.kv_dtype = input_.given.kv_dtype.value_or(DType::kF16);
    policy.kv = input_.given.kv.value_or(KvPolicy{});
    const StorageChoice& storage = input_.storage[block.storage];
    policy.weight_bits = storage.weight_bits;
    policy.kv_bits = storage.kv_bits;
    if (storage.calibrated != nullptr) policy.kv = storage.calibrated->kv;
    if (storage.kv_budget) {
      policy.kv.budget = {*storage.kv_budget, {}, {}};
      policy.kv.layer_budgets.clear();
      policy.kv.head_budgets.clear();
    }
    policy.prefill_chunk = block.prefill_chunk;
    return policy;
  }

  // Model in the bits that the block's storage has.
  const Model& ModelOf(const BlockShape& block) {
    const int bits = input_.storage[block.storage].weight_bits;
    if (bits == input_.model.shape.weight_bits) return input_.model;
    Model& stored = models_[bits];
    if (stored.layers.empty()) {
      ModelShape shape = input_.model.shape;
      shape.weight_bits = bits;
      stored = MakeModel(std::move(shape));
    }
    return stored;
  }

  const PlacementLp& LpOf(const BlockShape& block) {
    const std::tuple key(block.batch_size, block.cpu_attention, block.storage, block.prefill_chunk);
    std::unique_ptr<PlacementLp>& lp = lps_[key];
    if (!lp) {
      lp = std::make_unique<PlacementLp>(ModelOf(block), input_.machine, input_.work,
                                         PolicyOf(block, {}), input_.needs);
    }
    return *lp;
  }

  PlacementLp::Limits LimitsOf(const BlockShape& block) const {
    PlacementLp::Limits limits;
    limits.num_batches = block.num_batches;
    limits.cap_bytes = input_.machine.cap_bytes;
    if (const auto& placement = input_.given.placement) {
      limits.weights = placement->weights;
      limits.kv = placement->kv;
      limits.activations = placement->activations;
    }
    return limits;
  }

  std::optional<PlacementAnswer> SolveLp(const BlockShape& block,
                                         const PlacementLp::Limits& limits) {
    ++result_.num_programs;
    return LpOf(block).Solve(limits);
  }

  // Whole rows: what a tier has no whole row for goes to the next slower one.
  static PerTier<double> WholeRows(const PerTier<double>& share, int64_t rows) {
    const auto count = static_cast<double>(rows);
    const auto floor = [&](double part) { return std::floor(part * count + 1e-6); };
    PerTier<double> whole;
    const double gpu = floor(share[Tier::kGpu]);
    const double cpu = std::min(count, floor(share[Tier::kGpu] + share[Tier::kCpu])) - gpu;
    whole[Tier::kGpu] = gpu / count;
    whole[Tier::kCpu] = cpu / count;
    whole[Tier::kDisk] = share[Tier::kDisk] > 0.0 ? (count - gpu - cpu) / count : 0.0;
    if (share[Tier::kDisk] <= 0.0) whole[Tier::kCpu] = 1.0 - whole[Tier::kGpu];
    return whole;
  }

  // Solves for whole rows first, then for the weights that fit beside them; again with tighter caps
  // when the layout takes more than its linear model says.
  void Try(const BlockShape& block) {
    if (tried_.insert(block).second) LayOutWithin(block, LimitsOf(block));
  }

  void LayOutWithin(const BlockShape& block, PlacementLp::Limits limits) {
    for (int rounding = 0; rounding < kMaxRoundings; ++rounding) {
      const auto loose = SolveLp(block, limits);
      if (!loose) return;
      PlacementLp::Limits whole = limits;
      if (!input_.given.placement) {
        whole.kv = WholeRows(loose->placement.kv, block.batch_size);
        whole.activations = WholeRows(loose->placement.activations, block.batch_size);
      }
      const auto rounded = SolveLp(block, whole);
      const Policy policy = PolicyOf(block, rounded ? rounded->placement : loose->placement);
      const Workload work = input_.endless ? OneBlock(input_.work, policy) : input_.work;
      const Plan plan = LayOut(ModelOf(block), input_.machine, work, policy, input_.needs);
      if (Fits(plan)) return Keep(block, plan, work, *loose);
      result_.shortage = {};
      for (const Tier tier : kAllTiers) {
        const int64_t excess = plan.Excess(tier);
        if (excess == 0) continue;
        // More each time: what a little less lets in may be as large again.
        limits.cap_bytes[tier] -= excess + excess / 8 + rounding * (limits.cap_bytes[tier] >> 8);
        result_.shortage.bytes[tier] = excess;
      }
    }
  }

  // Policies whose runs cannot be told apart: one that attends on the CPU to KV that was given all
  // to the GPU, blocks that the workload fills in the same way.
  static bool AreAlike(const Candidate& a, const Candidate& b) {
    return a.storage == b.storage && a.policy.gpu_batch_size == b.policy.gpu_batch_size &&
           a.prediction.prefill_s == b.prediction.prefill_s &&
           a.prediction.decode_s == b.prediction.decode_s && a.planned_bytes == b.planned_bytes;
  }

  void Keep(const BlockShape& block, const Plan& plan, const Workload& work,
            const PlacementAnswer& answer) {
    ThrowIfStopRequested();
    ++result_.num_plans;
    Candidate candidate;
    candidate.policy = plan.policy;
    candidate.storage = input_.storage[block.storage];
    candidate.prediction = input_.predict(plan, work);
    candidate.bound_by = answer.bound_by;
    for (const Tier tier : kAllTiers) candidate.planned_bytes[tier] = plan.PlannedBytes(tier);
    const auto alike = [&](const Candidate& other) { return AreAlike(other, candidate); };
    if (std::ranges::any_of(result_.best, alike)) return;
    const auto slower = std::ranges::find_if(result_.best, [&](const Candidate& other) {
      return other.prediction.generated_tokens_per_s < candidate.prediction.generated_tokens_per_s;
    });
    result_.best.insert(slower, std::move(candidate));
  }

  // Tries block shapes beside the best one of all, then beside the best of each storage, whose rate
  // the results tell too.
  void Refine() {
    RefineBestOf(kNumRefined, [](const Candidate&) { return true; });
    if (input_.storage.size() < 2) return;
    for (const StorageChoice& storage : input_.storage) {
      RefineBestOf(kNumRefinedOfEach,
                   [&](const Candidate& candidate) { return candidate.storage == storage; });
    }
  }

  // Tries block shapes beside the best candidate of a kind, at most so many, as long as there are
  // some.
  template <typename F>
  void RefineBestOf(std::size_t most, F is_of_kind) {
    for (std::size_t tries = 0; tries < most; ++tries) {
      const auto best = std::ranges::find_if(result_.best, is_of_kind);
      if (best == result_.best.end()) return;
      const std::size_t before = tried_.size();
      for (const BlockShape& block : Beside(BlockOf(*best))) {
        if (tried_.size() == before) Try(block);
      }
      if (tried_.size() == before) return;
    }
  }

  std::vector<BlockShape> Beside(const BlockShape& block) const {
    std::vector<BlockShape> shapes;
    const int64_t step = block.batch_size >= 8 ? 4 : 1;
    const auto add = [&](int64_t batch_size, int64_t num_batches) {
      const bool changes_given = (input_.given.gpu_batch_size && batch_size != block.batch_size) ||
                                 (input_.given.num_gpu_batches && num_batches != block.num_batches);
      if (changes_given || batch_size < 1 || num_batches < 1) return;
      if (batch_size > MaxRows() || (num_batches - 1) * batch_size >= MaxRows()) return;
      BlockShape shape = block;
      shape.batch_size = batch_size;
      shape.num_batches = num_batches;
      shapes.push_back(shape);
    };
    add(block.batch_size, block.num_batches + 1);
    add(block.batch_size, block.num_batches - 1);
    add(block.batch_size + step, block.num_batches);
    add(block.batch_size - step, block.num_batches);
    add(block.batch_size + step, block.num_batches - 1);
    add(block.batch_size - step, block.num_batches + 1);
    return shapes;
  }

  const SearchInput& input_;
  SearchResult result_;
  std::map<std::tuple<int64_t, bool, std::size_t, int64_t>, std::unique_ptr<PlacementLp>> lps_;
  std::map<int, Model> models_;  // by weight bits, other than the input's
  std::set<BlockShape> tried_;
};

}  // namespace

Workload OneBlock(const Workload& work, const Policy& policy) {
  return Repeated(work, policy.gpu_batch_size * policy.num_gpu_batches);
}

SearchResult SearchPolicies(const SearchInput& input) {
  SPILLWAY_CHECK(KnowsRates(input.machine) && input.work.num_requests > 0);
  return Search(input).Run();
}

}  // namespace spillway
