#include "policies/cost/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <variant>

#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"
#include "spillway/tile.h"

namespace spillway {
namespace {

double Over(double amount, double rate) { return rate > 0.0 ? amount / rate : 0.0; }

// What rates are measured of: matrices, heads and prompts of two sizes.
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

// How much longer a score of heads this wide takes than its width says.
double SoftmaxStretch(const DeviceRates& rates, double head_dim) {
  if (rates.narrow_attention_flops_per_s == 0.0) return 1.0;
  const double wide_s = kWideHead / rates.prefill_attention_flops_per_s;
  const double narrow_s = kNarrowHead / rates.narrow_attention_flops_per_s;
  const double width_s = std::max(0.0, wide_s - narrow_s) / (kWideHead - kNarrowHead);
  return (wide_s + (head_dim - kWideHead) * width_s) / (wide_s * head_dim / kWideHead);
}

// A tile's way to the device.
void AddTile(const Plan& plan, const TensorSpec& spec, const WeightTile& tile,
             PerLink<int64_t>& bytes) {
  if (tile.tier == plan.device()) return;
  int64_t size = TileBytes(spec, tile);
  if (tile.tier == Tier::kDisk) {
    size = RoundUp(size, kTileAlignBytes);
    bytes[Link::kDiskRead] += size;
  }
  if (plan.device() == Tier::kGpu) bytes[Link::kCpuToGpu] += size;
}

// Seconds that a product with so many rows takes for each weight element, and for each edge.
struct ProductCost {
  double element_s = 0.0;
  double edge_s = 0.0;
};

ProductCost CostOf(const MatmulRate& rate) {
  const double flops = 2.0 * static_cast<double>(rate.rows);
  const double wide_s = flops / rate.flops_per_s;
  if (rate.narrow_flops_per_s == 0.0) return {wide_s, 0.0};
  // Of a square matrix: element_s + edge_s / width.
  const double more_s = std::max(0.0, flops / rate.narrow_flops_per_s - wide_s);
  const double edge_s = more_s / (1.0 / kNarrowWidth - 1.0 / kWideWidth);
  return {std::max(0.0, wide_s - edge_s / kWideWidth), edge_s};
}

// Between two measurements a straight line; below the first the weights still have to be read.
ProductCost CostAt(const std::vector<MatmulRate>& rates, double rows) {
  const auto above = std::ranges::find_if(
      rates, [rows](const MatmulRate& rate) { return static_cast<double>(rate.rows) >= rows; });
  if (above == rates.begin()) return CostOf(*above);
  const bool beyond = above == rates.end();
  const MatmulRate& below = *std::prev(above);
  const ProductCost low = beyond ? ProductCost{} : CostOf(below);
  const ProductCost high = CostOf(beyond ? below : *above);
  const double low_rows = beyond ? 0.0 : static_cast<double>(below.rows);
  const double high_rows = static_cast<double>(beyond ? below.rows : above->rows);
  const double part = (rows - low_rows) / (high_rows - low_rows);
  return {low.element_s + part * (high.element_s - low.element_s),
          low.edge_s + part * (high.edge_s - low.edge_s)};
}

const std::vector<MatmulRate>& CodedRates(const DeviceRates& rates, DType weights) {
  return weights == DType::kQ8 ? rates.matmul_8bit : rates.matmul_4bit;
}

// Quantised weights have the edges of 16-bit ones, and where their own rates are not known the rest
// as well: right where arithmetic is the limit, too slow for single rows.
ProductCost CostOf(const DeviceRates& rates, const ProductSize& size) {
  const auto rows = static_cast<double>(size.rows);
  ProductCost cost = CostAt(rates.matmul, rows);
  if (!IsQuantised(size.weights)) return cost;
  const std::vector<MatmulRate>& coded = CodedRates(rates, size.weights);
  if (coded.empty()) return cost;
  const double edges_s = cost.edge_s / kWideWidth;
  cost.element_s = std::max(0.0, CostAt(coded, rows).element_s - edges_s);
  return cost;
}

// Where rows in `tier` are attended to once they are in place.
bool OnCpu(const Plan& plan, Tier tier) {
  return plan.device() == Tier::kCpu || (plan.policy.cpu_attention && tier != Tier::kGpu);
}

// To disk: what the pass changes, or of rows that are not written whole what their log gets.
int64_t KvWrittenBytes(const Plan& plan, const Cursor& cell, const KvLoad& kv) {
  if (plan.LoggedAfter(cell) == 0) return kv.stored_slots * plan.slot_bytes;
  return kv.prompt_slots * plan.slot_bytes +
         kv.decoding_rows * (plan.kv_log.state_bytes + plan.kv_log.token_bytes);
}

int64_t TokensOnCpu(const Plan& plan, const PerTier<KvLoad>& kv) {
  int64_t tokens = 0;
  for (const Tier tier : kAllTiers) {
    if (OnCpu(plan, tier)) tokens += kv[tier].attended_tokens;
  }
  return tokens;
}

// What the links that are in use take from the CPU memory's rate, as far as it is not measured.
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

// What is left of the rate at which cores attend to a cache of 16 bits, in bytes, when they unpack
// codes. Measured with AVX-512 on one core (kernel_bench --only budget, 128 slots): 13.7 GB/s of 16
// bits, 9.3 of 8, 6.7 of 4.
double CodedRateShare(int kv_bits) { return kv_bits == 16 ? 1.0 : kv_bits == 8 ? 0.68 : 0.49; }

// Makes the rates of the CPU's kernels those on a cache of so many bits.
void TakeCodedShare(DeviceRates& cpu, int kv_bits) {
  cpu.decode_attention_bytes_per_s *= CodedRateShare(kv_bits);
  cpu.evicting_decode_bytes_per_s *= CodedRateShare(kv_bits);
}

struct DecodeRates {
  double full_bytes_per_s = 0.0;
  double evicting_bytes_per_s = 0.0;
};

// What attention reads of a cache: without the state beside K and V where tokens are evicted.
int64_t ReadSlotBytes(const Plan& plan) {
  if (!plan.policy.kv.evicts()) return plan.slot_bytes;
  return KvSlotBytes(plan.shape.num_kv_heads, plan.shape.head_dim, plan.policy.kv_bits);
}

double DecodeSeconds(const Plan& plan, const DecodeRates& rates, int64_t tokens) {
  if (plan.policy.kv.evicts() && rates.evicting_bytes_per_s > 0.0) {
    return Over(static_cast<double>(tokens * ReadSlotBytes(plan)), rates.evicting_bytes_per_s);
  }
  return Over(static_cast<double>(tokens * plan.slot_bytes), rates.full_bytes_per_s);
}

}  // namespace

std::string CostUnitName(CostUnit unit, Tier device) {
  constexpr std::array<std::string_view, kAllCostUnits.size()> kNames = {
      "matmul", "memory", "attention", "attention", "states", "logits", "sampling", "launch"};
  const bool on_cpu = unit == CostUnit::kCpuAttention || unit == CostUnit::kSampling;
  return fmt::format("{} {}", TierName(on_cpu ? Tier::kCpu : device),
                     kNames[static_cast<std::size_t>(unit)]);
}

UnitSeconds& UnitSeconds::operator+=(const UnitSeconds& other) {
  for (std::size_t unit = 0; unit < values.size(); ++unit) values[unit] += other.values[unit];
  return *this;
}

double UnitSeconds::total_s() const { return std::accumulate(values.begin(), values.end(), 0.0); }

bool KnowsRates(const Machine& machine) { return !machine.rates.cpu.matmul.empty(); }

CostRates RatesOf(const Machine& machine) {
  SPILLWAY_CHECK(KnowsRates(machine));
  CostRates rates;
  rates.cpu = machine.rates.cpu;
  const bool has_gpu = machine.device == Tier::kGpu && !machine.rates.gpu.matmul.empty();
  rates.device = has_gpu ? machine.rates.gpu : machine.rates.cpu;
  // A GPU's own engines copy beside its computes.
  if (!has_gpu || machine.rates.gpu == machine.rates.cpu)
    rates.beside_compute = machine.rates.beside_compute;
  rates.link_bytes_per_s = machine.rates.link_bytes_per_s;
  rates.disk_both_frac = machine.rates.disk_both_frac;
  for (const Link link : {Link::kCpuToGpu, Link::kGpuToCpu}) {
    // A copy reads and writes memory.
    double& rate = rates.link_bytes_per_s[link];
    if (machine.device == Tier::kGpu && rate == 0.0) rate = rates.cpu.memory_bytes_per_s / 2.0;
  }
  rates.kv_bytes_per_s = rates.link_bytes_per_s;
  rates.store_bytes_per_s = machine.rates.store_bytes_per_s;
  return rates;
}

PerLink<int64_t> WeightBytes(const Plan& plan, int64_t layer) {
  PerLink<int64_t> bytes;
  ForEachTensorComingWith(plan, layer, [&](const PlannedTensor& tensor) {
    for (const WeightTile& tile : tensor.tiles) AddTile(plan, tensor.spec, tile, bytes);
  });
  return bytes;
}

PerLink<int64_t> FirstWeightBytes(const Plan& plan) {
  PerLink<int64_t> bytes;
  for (const PlannedTensor& tensor : plan.layers.front().tensors) {
    for (const WeightTile& tile : tensor.tiles) AddTile(plan, tensor.spec, tile, bytes);
  }
  return bytes;
}

PerLink<int64_t> KvInBytes(const Plan& plan, const PerTier<KvLoad>& kv) {
  PerLink<int64_t> bytes;
  for (const Tier tier : kAllTiers) {
    if (plan.KvInPlace(tier)) continue;
    const int64_t size = kv[tier].loaded_slots * plan.slot_bytes;
    if (tier == Tier::kDisk) bytes[Link::kDiskRead] += size;
    if (plan.kv_staging.tier == Tier::kGpu) bytes[Link::kCpuToGpu] += size;
  }
  return bytes;
}

PerLink<int64_t> KvInBytes(const Plan& plan, const Cursor& cell, const PerTier<KvLoad>& kv) {
  PerLink<int64_t> bytes = KvInBytes(plan, kv);
  const KvLogPlan& log = plan.kv_log;
  const KvLoad& on_disk = kv[Tier::kDisk];
  const int64_t tokens = std::min(plan.LoggedBefore(cell), on_disk.most_decoded);
  if (tokens == 0) return bytes;
  bytes[Link::kDiskRead] += on_disk.decoding_rows * (log.state_bytes + tokens * log.token_bytes);
  return bytes;
}

// Rows that the CPU attends to get their new tokens from the GPU that made them.
PerLink<int64_t> KvOutBytes(const Plan& plan, const Cursor& cell, const PerTier<KvLoad>& kv) {
  PerLink<int64_t> bytes;
  for (const Tier tier : kAllTiers) {
    const int64_t size = kv[tier].stored_slots * plan.slot_bytes;
    if (!plan.KvInPlace(tier)) {
      if (tier == Tier::kDisk) bytes[Link::kDiskWrite] += KvWrittenBytes(plan, cell, kv[tier]);
      if (plan.kv_staging.tier == Tier::kGpu) bytes[Link::kGpuToCpu] += size;
    }
    if (plan.device() == Tier::kGpu && plan.policy.cpu_attention && tier != Tier::kGpu) {
      bytes[Link::kGpuToCpu] += kv[tier].new_tokens * plan.slot_bytes;
    }
  }
  return bytes;
}

PerLink<int64_t> HiddenInBytes(const Plan& plan, const BatchLoad& load) {
  PerLink<int64_t> bytes;
  for (const Tier tier : kAllTiers) {
    if (tier == plan.device()) continue;
    int64_t size = load.hidden_tokens[tier] * plan.HiddenRowBytes();
    if (tier == Tier::kDisk) size = RoundUp(size, kHiddenBlockBytes);
    if (tier == Tier::kDisk) bytes[Link::kDiskRead] += size;
    if (plan.device() == Tier::kGpu) bytes[Link::kCpuToGpu] += size;
  }
  return bytes;
}

PerLink<int64_t> HiddenOutBytes(const Plan& plan, const BatchLoad& load) {
  const PerLink<int64_t> in = HiddenInBytes(plan, load);
  PerLink<int64_t> bytes;
  bytes[Link::kDiskWrite] = in[Link::kDiskRead];
  bytes[Link::kGpuToCpu] = in[Link::kCpuToGpu];
  return bytes;
}

UnitSeconds ProductSeconds(const DeviceRates& rates, const ProductSize& size) {
  UnitSeconds seconds;
  const ProductCost cost = CostOf(rates, size);
  const double arithmetic_s =
      static_cast<double>(size.elements) * cost.element_s + size.edges * cost.edge_s;
  const double read_s = Over(static_cast<double>(size.bytes), rates.memory_bytes_per_s);
  seconds[read_s > arithmetic_s ? CostUnit::kMemory : CostUnit::kMatmul] =
      std::max(read_s, arithmetic_s);
  return seconds;
}

double PrefillAttentionSeconds(const Plan& plan, const DeviceRates& rates, int64_t pairs) {
  const int64_t width = plan.shape.num_heads * plan.shape.head_dim;
  return static_cast<double>(pairs * width) * PrefillCost(rates).pair_s *
         SoftmaxStretch(rates, static_cast<double>(plan.shape.head_dim));
}

double KvAppendSeconds(const Plan& plan, const DeviceRates& rates, int64_t tokens) {
  const int64_t width = plan.shape.num_heads * plan.shape.head_dim;
  return static_cast<double>(tokens * width) * PrefillCost(rates).token_s;
}

double PrefillEvictionSeconds(const Plan& plan, const DeviceRates& rates, int64_t pairs) {
  if (!plan.policy.kv.evicts() || rates.evicting_prefill_flops_per_s == 0.0) return 0.0;
  const double more_s = Over(4.0 * kWideHead, rates.evicting_prefill_flops_per_s) -
                        Over(4.0 * kWideHead, rates.prefill_attention_flops_per_s);
  return static_cast<double>(pairs * plan.shape.num_heads) * std::max(0.0, more_s);
}

double FirstTouchSeconds(const Plan& plan, const CostRates& rates, const PerTier<KvLoad>& kv) {
  int64_t bytes = 0;
  for (const Tier tier : kAllTiers) {
    if (plan.KvInPlace(tier)) bytes += kv[tier].new_tokens * plan.slot_bytes;
  }
  return Over(static_cast<double>(bytes), rates.device.first_touch_bytes_per_s);
}

double DecodeAttentionSeconds(const Plan& plan, const DeviceRates& rates, int64_t tokens) {
  return DecodeSeconds(
      plan, {rates.decode_attention_bytes_per_s, rates.evicting_decode_bytes_per_s}, tokens);
}

int64_t CpuAttentionBytes(const Plan& plan, const PerTier<KvLoad>& kv) {
  return TokensOnCpu(plan, kv) * ReadSlotBytes(plan);
}

double CpuAttentionSeconds(const Plan& plan, const CostRates& rates, const PerTier<KvLoad>& kv,
                           int64_t traffic_bytes) {
  const int64_t tokens = TokensOnCpu(plan, kv);
  const double memory = rates.cpu.memory_bytes_per_s;
  const double left =
      std::max(kLeastMemoryShare * memory, memory - LinkTrafficBytesPerS(plan, rates));
  const DecodeRates cores = {rates.cpu.decode_attention_bytes_per_s,
                             rates.cpu.evicting_decode_bytes_per_s};
  const double read_s = DecodeSeconds(plan, {left, left}, tokens);
  const double all_s = DecodeSeconds(plan, {memory, memory}, tokens) +
                       Over(static_cast<double>(traffic_bytes), memory);
  return std::max(DecodeSeconds(plan, cores, tokens), std::min(read_s, all_s));
}

double HostRowsSeconds(const Plan& plan, const CostRates& rates, const PerTier<KvLoad>& kv) {
  if (!plan.AttendsBeside()) return 0.0;
  const int64_t rows = kv[Tier::kCpu].new_tokens + kv[Tier::kDisk].new_tokens;
  const int64_t query_bytes = plan.shape.num_heads * plan.shape.head_dim * int64_t{sizeof(float)};
  const int64_t kv_bytes =
      2 * plan.shape.num_kv_heads * plan.shape.head_dim * int64_t{sizeof(float)};
  const int64_t more_bytes = std::max<int64_t>(0, kv_bytes - plan.slot_bytes);
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
  return Over(static_cast<double>(kPasses * tokens * plan.HiddenRowBytes()),
              rates.memory_bytes_per_s);
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

CostModel::LayerSize CostModel::SizeOf(const PlannedLayer& layer) const {
  LayerSize size;
  for (const Op& op : layer.ops) {
    if (const auto* linear = std::get_if<Linear>(&op)) {
      const TensorSpec& weight = plan_.Tensor(linear->weight).spec;
      size.elements += weight.rows * weight.cols;
      size.edges += 0.5 * static_cast<double>(weight.rows + weight.cols);
      size.bytes += weight.bytes();
      if (linear->plus) ++size.num_sums;
    } else if (const auto* gather = std::get_if<Gather>(&op)) {
      size.gathered_bytes += plan_.Tensor(gather->table).spec.row_bytes();
    } else if (std::holds_alternative<Norm>(op)) {
      ++size.num_norms;
    }
  }
  // Table rows are summed to a state; the head gathers the states that it needs.
  if (size.gathered_bytes > 0) size.gathered_bytes += plan_.HiddenRowBytes();
  if (layer.part == ComputePart::kHead) ++size.num_sums;
  return size;
}

CostModel::CostModel(const Plan& plan, CostRates rates) : plan_(plan), rates_(std::move(rates)) {
  const bool of_the_cpu = rates_.device == rates_.cpu;  // an emulated GPU's too
  TakeCodedShare(rates_.cpu, plan.policy.kv_bits);
  if (of_the_cpu) TakeCodedShare(rates_.device, plan.policy.kv_bits);
  for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
    layers_.push_back(SizeOf(plan.layers[layer]));
    layers_.back().loads = WeightBytes(plan, static_cast<int64_t>(layer));
  }
}

PerLink<int64_t> CostModel::Bytes(const Task& task, const BatchLoad& load) const {
  const auto layer = static_cast<std::size_t>(task.cell.layer);
  switch (task.kind) {
    case TaskKind::kLoadKv:
      return KvInBytes(plan_, task.cell, load.KvOf(plan_.layers[layer].block));
    case TaskKind::kStoreKv:
      return KvOutBytes(plan_, task.cell, load.KvOf(plan_.layers[layer].block));
    case TaskKind::kLoadHidden:
      return HiddenInBytes(plan_, load);
    case TaskKind::kStoreHidden:
      return HiddenOutBytes(plan_, load);
    case TaskKind::kCompute:
      return {};
    case TaskKind::kLoadWeights:
      break;
  }
  PerLink<int64_t> bytes = layers_[layer].loads;
  for (int64_t& size : bytes.values) {
    size = size * (task.share + 1) / task.num_shares - size * task.share / task.num_shares;
  }
  return bytes;
}

double CostModel::Seconds(Link link, TaskKind kind, int64_t bytes) const {
  if (bytes == 0) return 0.0;
  const bool kv = kind == TaskKind::kLoadKv || kind == TaskKind::kStoreKv;
  const bool of_store = kind == TaskKind::kLoadWeights && link == Link::kDiskRead;
  double rate = (kv ? rates_.kv_bytes_per_s : rates_.link_bytes_per_s)[link];
  if (of_store && rates_.store_bytes_per_s > 0.0) rate = rates_.store_bytes_per_s;
  SPILLWAY_CHECK(rate > 0.0);
  return static_cast<double>(bytes) / rate;
}

int64_t CostModel::TrafficBytes(int64_t layer) const {
  const int64_t block = plan_.layers[static_cast<std::size_t>(layer)].block;
  int64_t bytes = 0;
  for (auto of = static_cast<std::size_t>(layer);
       of < layers_.size() && plan_.layers[of].block == block; ++of) {
    bytes += layers_[of].loads[Link::kDiskRead] + layers_[of].loads[Link::kCpuToGpu];
  }
  return bytes;
}

UnitSeconds CostModel::Attention(int64_t layer, const BatchLoad& load) const {
  const int64_t block = plan_.layers[static_cast<std::size_t>(layer)].block;
  UnitSeconds seconds;
  int64_t pairs = 0;
  int64_t tokens = 0;
  for (const Tier tier : kAllTiers) {
    const KvLoad& kv = load.KvOf(block)[tier];
    pairs += kv.prompt_pairs;
    if (!OnCpu(plan_, tier)) tokens += kv.attended_tokens;
  }
  seconds[CostUnit::kAttention] = PrefillAttentionSeconds(plan_, rates_.device, pairs) +
                                  PrefillEvictionSeconds(plan_, rates_.device, pairs) +
                                  KvAppendSeconds(plan_, rates_.device, load.prompt_tokens) +
                                  DecodeAttentionSeconds(plan_, rates_.device, tokens);
  const PerTier<KvLoad>& kv = load.KvOf(block);
  seconds[CostUnit::kCpuAttention] = CpuAttentionSeconds(
      plan_, rates_, kv,
      TrafficBytes(layer) / plan_.num_batches + KvInBytes(plan_, kv)[Link::kDiskRead]);
  if (!load.prefills()) seconds[CostUnit::kCpuAttention] += HostRowsSeconds(plan_, rates_, kv);
  return seconds;
}

UnitSeconds CostModel::Compute(int64_t layer, const BatchLoad& load) const {
  const LayerSize& size = layers_[static_cast<std::size_t>(layer)];
  const PlannedLayer& of = plan_.layers[static_cast<std::size_t>(layer)];
  const bool head = of.part == ComputePart::kHead;
  // The head sees the last token of each row, all at once; the others see chunks.
  const int64_t tokens = head ? load.rows : load.tokens;
  const int64_t chunk = head ? tokens : std::min(tokens, plan_.workspace.chunk_tokens);
  const int64_t num_chunks = (tokens + chunk - 1) / chunk;
  UnitSeconds seconds;
  if (size.elements > 0) {
    const UnitSeconds product = ProductSeconds(
        rates_.device, {chunk, size.elements, size.bytes, size.edges, MatrixDType(plan_.shape)});
    const double chunks = static_cast<double>(tokens) / static_cast<double>(chunk);
    for (const CostUnit unit : {CostUnit::kMatmul, CostUnit::kMemory}) {
      seconds[unit] = chunks * product[unit];
    }
  }
  seconds[CostUnit::kMemory] +=
      Over(static_cast<double>(tokens * size.gathered_bytes), rates_.device.memory_bytes_per_s);
  seconds[CostUnit::kStates] = size.num_norms * NormSeconds(plan_, rates_.device, tokens) +
                               size.num_sums * ResidualSeconds(plan_, rates_.device, tokens);
  if (of.attends) seconds += Attention(layer, load);
  if (head) {
    seconds[CostUnit::kLogits] = LogitsSeconds(plan_, rates_, load.rows);
    seconds[CostUnit::kSampling] = SamplingSeconds(plan_, rates_.cpu, load.rows);
  }
  seconds[CostUnit::kLaunch] = static_cast<double>(num_chunks) * rates_.device.launch_s;
  return seconds;
}

}  // namespace spillway
