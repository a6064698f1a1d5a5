#include "src/gpu/gpu_needs.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "kernels/attention/decode_attention.h"
#include "kernels/matmul/matmul_workspace.h"
#include "kernels/rows/choose_experts.h"
#include "spillway/error.h"
#include "src/gpu/exchange.h"

namespace spillway {
namespace {

constexpr int64_t kMaxGridRows = 65535;  // a launch's second dimension

[[noreturn]] void RefuseShape(const ModelShape& shape, std::string_view what, int64_t value,
                              std::string_view rule) {
  throw Error(ErrorCode::kModelUnsupported,
              fmt::format("{}: {} is {}, and the GPU's kernels take {}; use --device cpu",
                          Printable(shape.name), what, value, rule));
}

}  // namespace

KernelNeeds GpuNeeds() {
  KernelNeeds needs;
  needs.matmul_bytes = [](int64_t rows, int64_t in, int) {
    return kernels::GpuMatmulWorkspaceBytes(rows, in);
  };
  needs.attention_bytes = [](int64_t, int64_t, int) { return int64_t{0}; };
  needs.eviction_bytes = needs.attention_bytes;
  needs.exchange = ExchangeBytesOf;
  return needs;
}

void RefuseWhatGpuLacks(const Plan& plan) {
  if (!plan.machine.has_gpu()) return;
  const ModelShape& shape = plan.shape;
  if (shape.experts.num > kernels::kMaxGpuExperts) {
    RefuseShape(shape, "the number of experts", shape.experts.num, "up to 512");
  }
  if (shape.head_dim % 8 != 0 || shape.head_dim > kernels::kMaxGpuHeadDim) {
    RefuseShape(shape, "the head dimension", shape.head_dim, "multiples of 8 up to 256");
  }
  for (const int64_t length : ProductLengths(plan)) {
    if (length % 8 != 0) RefuseShape(shape, "a layer's width", length, "multiples of 8");
  }
  if (MaxProductRows(plan) > kMaxGridRows) {
    throw Error(ErrorCode::kFlag,
                fmt::format("--prefill-chunk and --gpu-batch-size: the GPU computes at most {} "
                            "tokens at a time; give less than {}",
                            kMaxGridRows, MaxProductRows(plan)));
  }
}

std::vector<int64_t> ProductLengths(const Plan& plan) {
  std::vector<int64_t> lengths;
  for (const PlannedLayer& layer : plan.layers) {
    for (const Linear* linear : ProductsOf(layer.ops)) {
      const int64_t length = plan.Tensor(linear->weight).spec.cols;
      if (std::ranges::find(lengths, length) == lengths.end()) lengths.push_back(length);
    }
  }
  return lengths;
}

int64_t MaxProductRows(const Plan& plan) {
  return std::max(plan.workspace.chunk_tokens, plan.batch.logits);
}

}  // namespace spillway
