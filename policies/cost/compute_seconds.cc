#include "policies/cost/compute_seconds.h"

#include <algorithm>
#include <vector>

#include "spillway/round.h"

namespace spillway {
namespace {

// Sizes that rates are measured with: two widths of matrices, of heads and of prompts.
constexpr double kWideWidth = 4096.0;
constexpr double kNarrowWidth = 1024.0;
constexpr double kWideHead = 128.0;
constexpr double kNarrowHead = 64.0;
constexpr double kLongPrompt = 512.0;
constexpr double kShortPrompt = 128.0;

double Pairs(double prompt) { return prompt * (prompt + 1.0) / 2.0; }

// Seconds that a token, and a pair of tokens, take for each element of the heads' width.
struct AttentionCost {
  double token_s = 0.0;
  double pair_s = 0.0;
};

AttentionCost PrefillCost(const DeviceRates& rates) {
  const double long_s = Over(4.0 * Pairs(kLongPrompt), rates.prefill_attention_flops_per_s);
  if (rates.short_attention_flops_per_s == 0.0) return {0.0, long_s / Pairs(kLongPrompt)};
  const double prompts = kLongPrompt / kShortPrompt;
  const double short_s =
      Over(4.0 * prompts * Pairs(kShortPrompt), rates.short_attention_flops_per_s);
  const double pair_s =
      std::max(0.0, long_s - short_s) / (Pairs(kLongPrompt) - prompts * Pairs(kShortPrompt));
  return {std::max(0.0, long_s - Pairs(kLongPrompt) * pair_s) / kLongPrompt, pair_s};
}

// Factor by which a score of heads this wide takes longer than its width says.
double SoftmaxStretch(const DeviceRates& rates, double head_dim) {
  if (rates.narrow_attention_flops_per_s == 0.0) return 1.0;
  const double wide_s = kWideHead / rates.prefill_attention_flops_per_s;
  const double narrow_s = kNarrowHead / rates.narrow_attention_flops_per_s;
  const double width_s = std::max(0.0, wide_s - narrow_s) / (kWideHead - kNarrowHead);
  return (wide_s + (head_dim - kWideHead) * width_s) / (wide_s * head_dim / kWideHead);
}

// Seconds that a product with so many rows takes for each weight element, and for each edge or
// product.
struct ProductCost {
  double element_s = 0.0;
  double overhead_s = 0.0;
};

// How often a square matrix of this width has the overhead, for each of its elements.
double OverheadsPerElement(ProductOverhead overhead, double width) {
  return (overhead == ProductOverhead::kPerEdge ? width : 1.0) / (width * width);
}

ProductCost CostOf(const MatmulRate& rate, ProductOverhead overhead) {
  const double flops = 2.0 * static_cast<double>(rate.rows);
  const double wide_s = flops / rate.flops_per_s;
  if (rate.narrow_flops_per_s == 0.0) return {wide_s, 0.0};
  const double wide = OverheadsPerElement(overhead, kWideWidth);
  const double narrow = OverheadsPerElement(overhead, kNarrowWidth);
  const double more_s = std::max(0.0, flops / rate.narrow_flops_per_s - wide_s);
  const double overhead_s = more_s / (narrow - wide);
  return {std::max(0.0, wide_s - overhead_s * wide), overhead_s};
}

// Cost on a straight line between two measurements; below the first the weights still have to be
// read.
ProductCost CostAt(const std::vector<MatmulRate>& rates, double rows, ProductOverhead overhead) {
  const auto above = std::ranges::find_if(
      rates, [rows](const MatmulRate& rate) { return static_cast<double>(rate.rows) >= rows; });
  if (above == rates.begin()) return CostOf(*above, overhead);
  const bool beyond = above == rates.end();
  const MatmulRate& below = *std::prev(above);
  const ProductCost low = beyond ? ProductCost{} : CostOf(below, overhead);
  const ProductCost high = CostOf(beyond ? below : *above, overhead);
  const double low_rows = beyond ? 0.0 : static_cast<double>(below.rows);
  const double high_rows = static_cast<double>(beyond ? below.rows : above->rows);
  const double part = (rows - low_rows) / (high_rows - low_rows);
  return {low.element_s + part * (high.element_s - low.element_s),
          low.overhead_s + part * (high.overhead_s - low.overhead_s)};
}

// Rates of codes of this type; where a profile has none of it, those of the nearest type. Null: it
// has none of any.
const std::vector<MatmulRate>* CodedRates(const DeviceRates& rates, DType weights) {
  const bool whole = weights == DType::kInt8 || weights == DType::kInt4;  // as q8 and q4
  const DType groups = CodeBits(weights) == 8 ? DType::kQ8 : DType::kQ4;
  const bool parts = !whole && weights != groups;  // sums of groups in parts, as of MXFP4
  for (const DType type : {weights, parts ? DType::kMxfp4 : groups, groups}) {
    const auto found = rates.matmul_codes.find(type);
    if (found != rates.matmul_codes.end()) return &found->second;
  }
  return nullptr;
}

// Quantised weights have the overhead of 16-bit ones, and where their own rates are not known the
// rest as well: right where arithmetic is the limit, too slow for single rows.
ProductCost CostOf(const DeviceRates& rates, const ProductSize& size) {
  const auto rows = static_cast<double>(size.rows);
  ProductCost cost = CostAt(rates.matmul, rows, size.overhead);
  if (!IsQuantised(size.weights)) return cost;
  const std::vector<MatmulRate>* coded = CodedRates(rates, size.weights);
  if (coded == nullptr) return cost;
  const double overhead_s = cost.overhead_s * OverheadsPerElement(size.overhead, kWideWidth);
  cost.element_s = std::max(0.0, CostAt(*coded, rows, size.overhead).element_s - overhead_s);
  return cost;
}

int64_t SlotsOnCpu(const Plan& plan, const PerTier<KvLoad>& kv) {
  int64_t slots = 0;
  for (const Tier tier : kAllTiers) {
    if (AttendsOnCpu(plan, tier)) slots += kv[tier].attended_slots;
  }
  return slots;
}

// K and V of a slot, without what is kept beside them.
int64_t AttendedSlotBytes(const Plan& plan) {
  return KvSlotBytes(plan.RunHeads(), plan.shape.head_dim, plan.policy.kv_bits);
}

// Bytes per second that the links in use take from the CPU memory's rate, as far as it is not
// measured.
double LinkTrafficBytesPerS(const Plan& plan, const CostRates& rates) {
  const auto rate_of = [&](Link link) {
    const bool measured = rates.beside_compute[link] != SharedPace{};
    return measured ? 0.0 : rates.link_bytes_per_s[link];
  };
  const bool disk = plan.weight_bytes[Tier::kDisk] + plan.kv[Tier::kDisk].size > 0;
  const bool up = plan.device() == Tier::kGpu && plan.weight_bytes[Tier::kGpu] < plan.WeightBytes();
  return (disk ? rate_of(Link::kDiskRead) : 0.0) + (up ? rate_of(Link::kCpuToGpu) : 0.0);
}

constexpr double kLeastMemoryShare = 0.25;  // what transfers can never take from the cores

struct DecodeRates {
  double full_bytes_per_s = 0.0;
  double evicting_bytes_per_s = 0.0;
};

double DecodeSeconds(const Plan& plan, const DecodeRates& rates, int64_t slots) {
  if (plan.kept.evicts() && rates.evicting_bytes_per_s > 0.0) {
    return Over(static_cast<double>(slots * AttendedSlotBytes(plan)), rates.evicting_bytes_per_s);
  }
  return Over(static_cast<double>(slots * plan.UsedSlotBytes()), rates.full_bytes_per_s);
}

// Scores, softmax and the sum of values. The softmax takes as long for heads of any width; the rest
// grows with the width.
double PrefillAttentionSeconds(const Plan& plan, const DeviceRates& rates, int64_t pairs) {
  const int64_t width = plan.shape.num_heads * plan.shape.head_dim;
  return static_cast<double>(pairs * width) * PrefillCost(rates).pair_s *
         SoftmaxStretch(rates, static_cast<double>(plan.shape.head_dim));
}

// The prompt's K and V go to the cache, token by token.
double KvAppendSeconds(const Plan& plan, const DeviceRates& rates, int64_t tokens) {
  const int64_t width = plan.shape.num_heads * plan.shape.head_dim;
  return static_cast<double>(tokens * width) * PrefillCost(rates).token_s;
}

// Seconds of a prompt beyond its attention where tokens are evicted by their scores, which need a
// second look at all pairs: a window's tokens are chosen by their positions.
double PrefillEvictionSeconds(const Plan& plan, const DeviceRates& rates, int64_t pairs) {
  if (!UsesScores(plan.kept.kind) || rates.evicting_prefill_flops_per_s == 0.0) return 0.0;
  const double more_s = Over(4.0 * kWideHead, rates.evicting_prefill_flops_per_s) -
                        Over(4.0 * kWideHead, rates.prefill_attention_flops_per_s);
  return static_cast<double>(pairs * plan.shape.num_heads) * std::max(0.0, more_s);
}

}  // namespace

bool AttendsOnCpu(const Plan& plan, Tier tier) {
  return plan.device() == Tier::kCpu || (plan.policy.cpu_attention && tier != Tier::kGpu);
}

UnitSeconds ProductSeconds(const DeviceRates& rates, const ProductSize& size) {
  UnitSeconds seconds;
  const ProductCost cost = CostOf(rates, size);
  const double overheads = size.overhead == ProductOverhead::kPerEdge
                               ? size.edges
                               : static_cast<double>(size.num_products);
  const double arithmetic_s =
      static_cast<double>(size.elements) * cost.element_s + overheads * cost.overhead_s;
  const double read_s = Over(static_cast<double>(size.bytes), rates.memory_bytes_per_s);
  seconds[read_s > arithmetic_s ? CostUnit::kMemory : CostUnit::kMatmul] =
      std::max(read_s, arithmetic_s);
  return seconds;
}

double PromptAttentionSeconds(const Plan& plan, const DeviceRates& rates, int64_t pairs,
                              int64_t tokens) {
  return PrefillAttentionSeconds(plan, rates, pairs) + PrefillEvictionSeconds(plan, rates, pairs) +
         KvAppendSeconds(plan, rates, tokens);
}

double DecodeAttentionSeconds(const Plan& plan, const DeviceRates& rates, int64_t slots) {
  return DecodeSeconds(
      plan, {rates.decode_attention_bytes_per_s, rates.evicting_decode_bytes_per_s}, slots);
}

int64_t CpuAttentionBytes(const Plan& plan, const PerTier<KvLoad>& kv) {
  return SlotsOnCpu(plan, kv) * AttendedSlotBytes(plan);
}

double CpuAttentionSeconds(const Plan& plan, const CostRates& rates, const PerTier<KvLoad>& kv,
                           int64_t traffic_bytes) {
  const int64_t slots = SlotsOnCpu(plan, kv);
  const double memory = rates.cpu.memory_bytes_per_s;
  const double left =
      std::max(kLeastMemoryShare * memory, memory - LinkTrafficBytesPerS(plan, rates));
  const DecodeRates cores = {rates.cpu.decode_attention_bytes_per_s,
                             rates.cpu.evicting_decode_bytes_per_s};
  const double read_s = DecodeSeconds(plan, {left, left}, slots);
  const double all_s = DecodeSeconds(plan, {memory, memory}, slots) +
                       Over(static_cast<double>(traffic_bytes), memory);
  return std::max(DecodeSeconds(plan, cores, slots), std::min(read_s, all_s));
}

double HostRowsSeconds(const Plan& plan, const CostRates& rates, const PerTier<KvLoad>& kv) {
  if (!plan.AttendsBeside()) return 0.0;
  const int64_t rows = (kv[Tier::kCpu].new_slots + kv[Tier::kDisk].new_slots) / plan.KvRuns();
  const int64_t query_bytes = plan.shape.num_heads * plan.shape.head_dim * int64_t{sizeof(float)};
  const int64_t kv_bytes =
      2 * plan.shape.num_kv_heads * plan.shape.head_dim * int64_t{sizeof(float)};
  const int64_t more_bytes = std::max<int64_t>(0, kv_bytes - plan.KvRuns() * plan.UsedSlotBytes());
  return Over(static_cast<double>(rows * (query_bytes + more_bytes)),
              rates.link_bytes_per_s[Link::kGpuToCpu]) +
         Over(static_cast<double>(rows * query_bytes), rates.link_bytes_per_s[Link::kCpuToGpu]);
}

double NormSeconds(const Plan& plan, const DeviceRates& rates, int64_t tokens) {
  if (rates.norm_elements_per_s > 0.0) {
    return Over(static_cast<double>(tokens * plan.shape.hidden_size), rates.norm_elements_per_s);
  }
  return ResidualSeconds(plan, rates, tokens);
}

double ResidualSeconds(const Plan& plan, const DeviceRates& rates, int64_t tokens) {
  constexpr int64_t kPasses = 2;  // read and written
  const int64_t row_bytes = plan.shape.hidden_size * int64_t{sizeof(float)};
  return Over(static_cast<double>(kPasses * tokens * row_bytes), rates.memory_bytes_per_s);
}

double LogitsSeconds(const Plan& plan, const CostRates& rates, int64_t rows) {
  const auto bytes = static_cast<double>(rows * plan.shape.vocab_size) * sizeof(float);
  return plan.device() == Tier::kGpu ? Over(bytes, rates.link_bytes_per_s[Link::kGpuToCpu]) : 0.0;
}

double SamplingSeconds(const Plan& plan, const DeviceRates& cpu, int64_t rows) {
  if (cpu.logits_per_s == 0.0) {
    return Over(static_cast<double>(rows * plan.shape.vocab_size) * sizeof(float),
                cpu.memory_bytes_per_s);
  }
  const int64_t rounds = DivideUp(rows, plan.machine.num_threads);
  return Over(static_cast<double>(rounds * plan.shape.vocab_size), cpu.logits_per_s);
}

}  // namespace spillway
