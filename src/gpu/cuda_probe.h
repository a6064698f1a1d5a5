// CudaProbe: GpuProbe on a real GPU. Takes its memory when it is made. Before each measurement the
// GPU is given a copy to do, so that what is measured is enqueued before it begins: the GPU is
// timed, not the host that feeds it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "kernels/attention/decode_attention.h"
#include "kernels/attention/prefill_attention.h"
#include "kernels/kv/kv_layout.h"
#include "kernels/matmul/matmul_gpu.h"
#include "src/cuda/compute_queue.h"
#include "src/cuda/stream.h"
#include "src/device/gpu_probe.h"
#include "src/gpu/attention_lists.h"
#include "src/gpu/cuda_copy_queue.h"
#include "src/gpu/device_arena.h"

namespace spillway {

class CudaProbe final : public GpuProbe {
 public:
  struct Sizes {
    int64_t hidden = 4096;  // the products and heads of OPT-6.7B
    int64_t head_dim = 128;
    int64_t rows = 512;           // of prompts, at most
    int64_t product_rows = 2048;  // likewise
    int64_t slots = 512;          // of a row's cache
    int64_t decode_rows = 64;     // their K and V are more than a cache holds
    int64_t norm_rows = 4096;     // states that no cache holds
    int64_t far_bytes = 1 << 30;
    int64_t host_bytes = 1 << 28;
  };

  // Throws: Error kGpu, kGpuMemory, kCpuMemory, kSystemLimit.
  CudaProbe(const Sizes& sizes, int gpu);

  Work CopyToGpu() override;
  Work CopyFromGpu() override;
  Work ReadMemory() override;
  Work Multiply(int64_t rows, int64_t width, DType weights) override;
  Work AttendPrefill(int64_t head_dim, int64_t prompt_tokens) override;
  Work AttendDecode() override;
  Work EvictPrefill() override;
  Work EvictDecode() override;
  Work Normalize() override;
  Work Launch() override;

 private:
  struct Product {  // square weights of one kind
    int64_t width;
    DType weights;
    auto operator<=>(const Product&) const = default;
  };

  void FillMemory();
  void Fill(const Region& region, DType dtype);
  void CopyWithin();
  std::byte* NextFar(int64_t bytes);
  Work Timed(double units, const std::function<void()>& enqueue);
  Work Copy(bool inward);
  kernels::GpuMatmul& MatmulOf(const Product& product);
  void MultiplyOnce(int64_t rows, const Product& product);
  ChunkRows Upload(const AttentionLists& lists);
  kernels::PrefillAttentionArgs Prefill(const ChunkRows& lists, int64_t head_dim) const;
  void Append(const kernels::PrefillAttentionArgs& prefill, const ChunkRows& lists, int64_t tokens);
  kernels::DecodeAttentionArgs Decode(const ChunkRows& lists) const;
  void LaunchLayer(const ChunkRows& lists);

  template <typename T>
  T* Of(const Region& region) const {
    return memory_.As<T>(region);
  }

  Sizes sizes_;
  Region far_;  // weights, K and V; read in turn
  Region qkv_;  // fp32 [rows, 3 * hidden]
  Region out_;
  Region matmul_;
  Region partials_;
  Region scores_;   // of prompts, and of the choice of what stays: four parts
  Region weights_;  // of decode steps that evict
  Region lists_;
  DeviceArena memory_;
  PinnedArena host_;
  ComputeQueue computes_;
  CudaCopyQueue copies_;
  Event begin_{Event::Kind::kTimed};
  Event end_{Event::Kind::kTimed};
  std::map<Product, kernels::GpuMatmul> products_;
  int64_t next_far_ = 0;
};

}  // namespace spillway
