#include "policies/cost/cost_model.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "policies/cost/compute_seconds.h"
#include "policies/cost/expert_work.h"
#include "spillway/error.h"
#include "spillway/expert_gather.h"

namespace spillway {
namespace {

bool Chooses(const std::vector<Op>& ops) {
  return std::ranges::any_of(ops, [](const Op& op) { return std::holds_alternative<Choose>(op); });
}

// Share of the rate of attention, in bytes of the cache, that cores keep when they unpack codes.
// Measured with AVX-512 on one core (kernel_bench --only budget, 128 slots): 13.7 GB/s of 16 bits,
// 9.3 of 8, 6.7 of 4.
double RateShare(int bits) { return bits == 16 ? 1.0 : bits == 8 ? 0.68 : 0.49; }

// The share where keys of 4 bits get their means as they are read: measured with 512 slots, a step
// takes 1.02 to 1.26 times as long.
constexpr double kCentredRateShare = 0.34;

// Keys and values are read one after the other: their times add up.
double CodedRateShare(KvBits bits, double key_share) {
  const double seconds = bits.key / key_share + bits.value / RateShare(bits.value);
  return (bits.key + bits.value) / seconds;
}

// Scales the rates of the CPU's kernels from a cache of 16 bits to one of so many.
void TakeCodedShare(DeviceRates& cpu, const Plan& plan) {
  const KvBits bits = plan.policy.kv_bits;
  const double share =
      CodedRateShare(bits, plan.centres_keys ? kCentredRateShare : RateShare(bits.key));
  cpu.decode_attention_bytes_per_s *= share;
  cpu.evicting_decode_bytes_per_s *= share;
}

}  // namespace

double FirstTouchSeconds(const Plan& plan, const CostRates& rates, const PerTier<KvLoad>& kv) {
  int64_t bytes = 0;
  for (const Tier tier : kAllTiers) {
    if (plan.KvInPlace(tier)) bytes += kv[tier].new_slots * plan.UsedSlotBytes();
  }
  return Over(static_cast<double>(bytes), rates.device.first_touch_bytes_per_s);
}

void CostModel::AddProduct(const Linear& linear, std::vector<ProductsSize>& sizes) const {
  const TensorSpec& weight = plan_.Tensor(linear.weight).spec;
  auto found = std::ranges::find(sizes, weight.dtype, &ProductsSize::weights);
  if (found == sizes.end()) found = sizes.insert(found, {weight.dtype});
  ProductsSize& size = *found;
  size.elements += weight.rows * weight.cols;
  size.edges += 0.5 * static_cast<double>(weight.rows + weight.cols);
  size.bytes += weight.bytes();
  ++size.num_products;
}

void CostModel::AddExperts(const Experts& experts, LayerSize& size) const {
  size.experts = &experts;
  for (const Linear* linear : ProductsOf(experts)) AddProduct(*linear, size.of_experts);
}

CostModel::LayerSize CostModel::SizeOf(const PlannedLayer& layer) const {
  LayerSize size;
  for (const Op& op : layer.ops) {
    if (const auto* linear = std::get_if<Linear>(&op)) {
      AddProduct(*linear, size.products);
      if (linear->plus) ++size.num_sums;
    } else if (const auto* gather = std::get_if<Gather>(&op)) {
      size.gathered_bytes += plan_.Tensor(gather->table).spec.row_bytes();
    } else if (const auto* norm = std::get_if<Norm>(&op)) {
      ++size.num_norms;
      if (norm->plus) ++size.num_sums;
    } else if (const auto* rotate = std::get_if<Rotate>(&op)) {
      size.turned += rotate->num_heads * rotate->rope.dims;
    } else if (std::holds_alternative<Attend>(op)) {
      const ModelShape& shape = plan_.shape;
      if (plan_.TurnsKeys()) size.turned += (shape.num_heads + shape.num_kv_heads) * shape.head_dim;
      if (plan_.TurnsValues())
        size.turned += (shape.num_heads + shape.num_kv_heads) * shape.head_dim;
    } else if (const auto* heads = std::get_if<HeadNorm>(&op)) {
      size.turned += heads->num_heads * heads->size;
    } else if (const auto* cap = std::get_if<SoftCap>(&op)) {
      size.turned += WidthOf(plan_.shape, cap->x);
    } else if (const auto* choose = std::get_if<Choose>(&op)) {
      size.turned += choose->num_experts * choose->top_k;
    } else if (const auto* experts = std::get_if<Experts>(&op)) {
      AddExperts(*experts, size);
    }
  }
  // Table rows are summed to a state; the head gathers the states that it needs.
  if (size.gathered_bytes > 0)
    size.gathered_bytes += plan_.shape.hidden_size * int64_t{sizeof(float)};
  if (layer.part == ComputePart::kHead) ++size.num_sums;
  return size;
}

CostModel::CostModel(const Plan& plan, CostRates rates) : plan_(plan), rates_(std::move(rates)) {
  const bool of_the_cpu = rates_.device == rates_.cpu;  // an emulated GPU's too
  enqueues_ = !of_the_cpu;
  TakeCodedShare(rates_.cpu, plan);
  if (of_the_cpu) TakeCodedShare(rates_.device, plan);
  int64_t known = -1;  // the layer after which the choices are
  for (int64_t layer = 0; layer < std::ssize(plan.layers); ++layer) {
    const PlannedLayer& of = plan.layers[static_cast<std::size_t>(layer)];
    layers_.push_back(SizeOf(of));
    layers_.back().loads = WeightBytes(plan, layer);
    // The host knows a GPU's choices one layer later.
    if (Chooses(of.ops)) known = enqueues_ ? layer + 1 : layer;
    layers_.back().loads_chosen =
        layers_.back().experts != nullptr && layer - plan.weight_lookahead > known;
  }
}

PerLink<int64_t> CostModel::Bytes(const Task& task, const BatchLoad& load) const {
  const auto layer = static_cast<std::size_t>(task.cell.layer);
  switch (task.kind) {
    case TaskKind::kLoadKv:
      return KvInBytes(plan_, task.cell, load.KvOf(plan_, plan_.layers[layer].decoder_layer));
    case TaskKind::kStoreKv:
      return KvOutBytes(plan_, task.cell, load.KvOf(plan_, plan_.layers[layer].decoder_layer));
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
    if (layers_[layer].loads_chosen) size = ChosenBytes(layers_[layer], size, load);
    size = size * (task.share + 1) / task.num_shares - size * task.share / task.num_shares;
  }
  return bytes;
}

// Bytes of the experts that any row of the block is expected to have.
int64_t CostModel::ChosenBytes(const LayerSize& size, int64_t bytes, const BatchLoad& load) const {
  const ExpertLoad experts =
      ExpertLoadOf(plan_.shape.experts, *size.experts, load.tokens * plan_.num_batches);
  return std::llround(static_cast<double>(bytes) * experts.touched /
                      static_cast<double>(size.experts->experts.size()));
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
  const int64_t decoder_layer = plan_.layers[static_cast<std::size_t>(layer)].decoder_layer;
  int64_t bytes = 0;
  for (auto of = static_cast<std::size_t>(layer);
       of < layers_.size() && plan_.layers[of].decoder_layer == decoder_layer; ++of) {
    bytes += layers_[of].loads[Link::kDiskRead] + layers_[of].loads[Link::kCpuToGpu];
  }
  return bytes;
}

UnitSeconds CostModel::Attention(int64_t layer, const BatchLoad& load) const {
  const int64_t decoder_layer = plan_.layers[static_cast<std::size_t>(layer)].decoder_layer;
  const PerTier<KvLoad>& kv = load.KvOf(plan_, decoder_layer);
  UnitSeconds seconds;
  int64_t pairs = 0;
  int64_t slots = 0;
  for (const Tier tier : kAllTiers) {
    pairs += kv[tier].prompt_pairs;
    if (!AttendsOnCpu(plan_, tier)) slots += kv[tier].attended_slots;
  }
  seconds[CostUnit::kAttention] =
      PromptAttentionSeconds(plan_, rates_.device, pairs, load.prompt_tokens) +
      DecodeAttentionSeconds(plan_, rates_.device, slots);
  seconds[CostUnit::kCpuAttention] = CpuAttentionSeconds(
      plan_, rates_, kv,
      TrafficBytes(layer) / plan_.num_batches + KvInBytes(plan_, kv)[Link::kDiskRead]);
  if (!load.prefills()) seconds[CostUnit::kCpuAttention] += HostRowsSeconds(plan_, rates_, kv);
  return seconds;
}

UnitSeconds CostModel::Products(const std::vector<ProductsSize>& sizes, int64_t rows,
                                double times) const {
  UnitSeconds seconds;
  for (const ProductsSize& size : sizes) {
    const UnitSeconds product = ProductSeconds(
        rates_.device,
        {rows, size.elements, size.bytes, size.edges, size.weights,
         enqueues_ ? ProductOverhead::kPerProduct : ProductOverhead::kPerEdge, size.num_products});
    for (const CostUnit unit : {CostUnit::kMatmul, CostUnit::kMemory})
      seconds[unit] += times * product[unit];
  }
  return seconds;
}

// A batch's share of the time of the experts that the tokens gathered have, and its rows' way to
// them and back.
UnitSeconds CostModel::ExpertSeconds(const LayerSize& size, int64_t tokens) const {
  const int64_t batches = GathersAllBatches(plan_) ? plan_.num_batches : 1;
  const ExpertLoad load = ExpertLoadOf(plan_.shape.experts, *size.experts, tokens * batches);
  const int64_t rows =
      std::clamp<int64_t>(std::llround(load.tokens), 1, plan_.workspace.chunk_tokens);
  const double taken = load.touched * load.tokens / static_cast<double>(batches);
  const auto num_experts = static_cast<double>(size.experts->experts.size());
  UnitSeconds seconds =
      Products(size.of_experts, rows, taken / num_experts / static_cast<double>(rows));
  seconds[CostUnit::kStates] = 2.0 * ResidualSeconds(plan_, rates_.device, std::llround(taken));
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
  UnitSeconds seconds =
      Products(size.products, chunk, static_cast<double>(tokens) / static_cast<double>(chunk));
  if (size.experts != nullptr) seconds += ExpertSeconds(size, tokens);
  seconds[CostUnit::kMemory] +=
      Over(static_cast<double>(tokens * size.gathered_bytes), rates_.device.memory_bytes_per_s);
  const double norms = size.num_norms + static_cast<double>(size.turned) /
                                            static_cast<double>(plan_.shape.hidden_size);
  seconds[CostUnit::kStates] += norms * NormSeconds(plan_, rates_.device, tokens) +
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
