// Rates that the GPU's kernels and links reach, beside the limits measured in the same run:
// gpu_bench [INDEX]. One JSON object a line: name, rate, unit, and the share of the limit that
// bounds it.
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "kernels/attention/decode_attention.h"
#include "kernels/attention/prefill_attention.h"
#include "kernels/matmul/matmul_gpu.h"
#include "kernels/matmul/matmul_workspace.h"
#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"
#include "src/base/clock.h"
#include "src/cuda/check.h"
#include "src/cuda/device.h"
#include "src/gpu/attention_lists.h"
#include "src/gpu/cuda_copy_queue.h"
#include "src/gpu/device_arena.h"

namespace spillway {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int kRounds = 5;
constexpr int kRepeats = 20;

// OPT-30B's widths.
constexpr int64_t kHidden = 7168;
constexpr int64_t kFfn = 4 * kHidden;
constexpr int64_t kHeads = 56;
constexpr int64_t kHeadDim = 128;

// The best of a few rounds: the limit of the hardware, not the average of its disturbances.
double BestSeconds(Stream& stream, const std::function<void()>& enqueue) {
  const Event begin(Event::Kind::kTimed);
  const Event end(Event::Kind::kTimed);
  double best = 1e300;
  for (int round = 0; round < kRounds; ++round) {
    stream.Record(begin);
    for (int repeat = 0; repeat < kRepeats; ++repeat) enqueue();
    stream.Record(end);
    end.Wait();
    best = std::min(best, end.SecondsSince(begin) / kRepeats);
  }
  return best;
}

struct Measured {
  std::string name;
  double rate;
  std::string unit;
  double limit;  // 0: it is one
};

void Print(const Measured& m) {
  const double scale = m.unit == "GB/s" ? 1e-9 : 1e-12;
  fmt::print("{{\"name\":\"{}\",\"rate\":{:.1f},\"unit\":\"{}\",\"share_of_limit\":{}}}\n", m.name,
             m.rate * scale, m.unit,
             m.limit > 0.0 ? fmt::format("{:.3f}", m.rate / m.limit) : std::string("null"));
  std::fflush(stdout);
}

class Bench {
 public:
  Bench() : memory_(kMemoryBytes), host_(kHostBytes) {}

  void Run() {
    MeasureMemory();
    for (const bool inward : {true, false}) MeasureLink(inward);
    for (const DType dtype : {DType::kF16, DType::kQ8, DType::kQ4, DType::kMxfp4, DType::kInt4,
                              DType::kFp8, DType::kGgufK4, DType::kGgufK6}) {
      for (const int64_t rows : {1, 8, 16, 64, 256, 512}) {
        MeasureProduct({dtype, rows, kHidden, kFfn});
      }
    }
    // The smallest matrices of OPT-1.3B: too few outputs for every processor.
    for (const DType dtype : {DType::kF16, DType::kQ8, DType::kQ4, DType::kMxfp4, DType::kInt4,
                              DType::kFp8, DType::kGgufK4, DType::kGgufK6}) {
      for (const int64_t rows : {1, 64}) MeasureProduct({dtype, rows, 2048, 2048});
    }
    for (const KvBits bits : {KvBits(16), KvBits(8), KvBits(8, 4), KvBits(4)}) {
      for (const int64_t slots : {544, 2048}) MeasureDecode(64, slots, bits);
      MeasureDecode(1, 32768, bits);
    }
    MeasurePrefill(4, 512);
    MeasurePrefill(1, 2048);
  }

 private:
  static constexpr int64_t kMemoryBytes = int64_t{6} << 30;
  static constexpr int64_t kHostBytes = 512 * kMiB;
  static constexpr int64_t kColdBytes = 1024 * kMiB;  // more than the caches of any GPU

  template <typename T>
  T* At(int64_t offset) const {
    return reinterpret_cast<T*>(memory_.View({offset, kMemoryBytes - offset}).data());
  }
  Stream& stream() { return computes_.stream(); }

  // Reads and writes of one large copy within the GPU: what no kernel exceeds by much.
  void MeasureMemory() {
    const int64_t bytes = kMemoryBytes / 2;
    const double seconds = BestSeconds(stream(), [&] {
      CudaCheck(
          cudaMemcpyAsync(At<std::byte>(bytes), At<std::byte>(0), static_cast<std::size_t>(bytes),
                          cudaMemcpyDeviceToDevice, stream().get()),
          "a copy within the GPU");
    });
    memory_bytes_per_s_ = 2.0 * static_cast<double>(bytes) / seconds;
    Print({"GPU memory, copy (read + write)", memory_bytes_per_s_, "GB/s", 0.0});
  }

  // One pinned copy, then the run's own queue in pieces of 2 MiB.
  void MeasureLink(bool inward) {
    std::byte* host = host_.As<std::byte>({0, kHostBytes});
    std::byte* gpu = At<std::byte>(0);
    const std::string name = inward ? "CPU to GPU" : "GPU to CPU";
    const double raw_s = BestSeconds(stream(), [&] {
      CudaCheck(
          cudaMemcpyAsync(inward ? gpu : host, inward ? host : gpu,
                          static_cast<std::size_t>(kHostBytes), cudaMemcpyDefault, stream().get()),
          "a pinned copy");
    });
    const double raw = static_cast<double>(kHostBytes) / raw_s;
    Print({name + ", one pinned copy", raw, "GB/s", 0.0});
    constexpr int64_t kPiece = 2 * kMiB;
    constexpr int64_t kInFlight = 8;
    CudaCopyQueue queue(computes_, 0);
    std::array<DeviceCopy, kInFlight> copies;
    const double begin_s = NowSeconds();
    const int64_t num_copies = 4 * kHostBytes / kPiece;
    for (int64_t copy = 0; copy < num_copies + kInFlight; ++copy) {
      DeviceCopy& place = copies[static_cast<std::size_t>(copy % kInFlight)];
      if (copy >= kInFlight) queue.Finish(place);
      if (copy >= num_copies) continue;
      const int64_t offset = copy * kPiece % kHostBytes;
      place = {(inward ? gpu : host) + offset, (inward ? host : gpu) + offset, kPiece, 0, 0};
      queue.Begin(place);
    }
    const double rate = static_cast<double>(num_copies * kPiece) / (NowSeconds() - begin_s);
    Print({name + ", queue of 2 MiB pieces", rate, "GB/s", raw});
  }

  struct Product {
    DType dtype;
    int64_t rows;
    int64_t in;
    int64_t out;
  };
  // Matrices that a cache holds are cold here too: each repeat takes the next of many.
  void MeasureProduct(const Product& p) {
    const std::array<int64_t, 1> ins = {p.in};
    kernels::GpuMatmul matmul(ins, p.dtype, 512);
    const int64_t weight_bytes = p.out * RowBytes(p.dtype, p.in);
    const int64_t num_weights = DivideUp(kColdBytes, weight_bytes);
    const int64_t x = RoundUp(num_weights * weight_bytes, 256);
    const int64_t y = x + p.rows * p.in * 4;
    const int64_t workspace = RoundUp(y + p.rows * p.out * 4, 256);
    CudaCheck(
        cudaMemsetAsync(At<std::byte>(0), 0, static_cast<std::size_t>(workspace), stream().get()),
        "clearing");
    matmul.ChooseForManyRows(memory_.View({workspace, kernels::GpuMatmulWorkspaceBytes(512, p.in)}),
                             stream());
    int64_t repeat = 0;
    const double seconds = BestSeconds(stream(), [&] {
      const std::array pieces = {
          kernels::MatmulPiece{At<std::byte>(repeat++ % num_weights * weight_bytes), p.dtype, p.out,
                               nullptr, At<float>(y), p.out, nullptr, 0}};
      matmul.MatmulAsync({At<float>(x), p.in, p.rows, p.in, Activation::kNone, pieces},
                         memory_.View({workspace, kernels::GpuMatmulWorkspaceBytes(p.rows, p.in)}),
                         stream());
    });
    const std::string name =
        fmt::format("{} product, {} x {}, {} rows", DTypeName(p.dtype), p.in, p.out, p.rows);
    Print({name + ", weights read", static_cast<double>(weight_bytes) / seconds, "GB/s",
           memory_bytes_per_s_});
    Print({name, 2.0 * static_cast<double>(p.rows * p.in * p.out) / seconds, "TFLOP/s", 0.0});
  }

  // Rows, tiles and items in GPU memory, from `offset`.
  struct Lists {
    const kernels::AttentionRow* rows;
    const kernels::RowTile* tiles;
    const kernels::DecodeItem* items;
    int64_t end;
  };
  Lists Upload(const AttentionLists& lists, int64_t offset) {
    const auto put = [&]<typename T>(const std::vector<T>& values) {
      T* to = At<T>(offset);
      CudaCheck(cudaMemcpyAsync(to, values.data(), values.size() * sizeof(T),
                                cudaMemcpyHostToDevice, stream().get()),
                "uploading lists");
      offset += (static_cast<int64_t>(values.size() * sizeof(T)) + 255) / 256 * 256;
      return static_cast<const T*>(to);
    };
    const Lists there = {put(lists.rows()), put(lists.tiles()), put(lists.items()), offset};
    CudaCheck(cudaStreamSynchronize(stream().get()), "uploading lists");
    return there;
  }

  // `rows` rows behind one another; returns the lists and leaves their caches in front.
  Lists ListRows(int64_t rows, int64_t num_past, int64_t num_new, KvBits bits = {}) {
    const int64_t slots = RoundUp(num_past + num_new, KvBlockSlots(bits));
    const int64_t row_bytes = slots * KvSlotBytes(kHeads, kHeadDim, bits);
    AttentionLists lists({rows, rows * num_new, rows * slots});
    for (int64_t row = 0; row < rows; ++row) {
      lists.Add({At<std::byte>(row * row_bytes), slots, num_past, num_new, row * num_new, nullptr},
                num_past == 0 ? RowPhase::kPrompt : RowPhase::kDecode);
    }
    CudaCheck(cudaMemsetAsync(At<std::byte>(0), 0, static_cast<std::size_t>(rows * row_bytes),
                              stream().get()),
              "clearing");
    num_tiles_ = static_cast<int64_t>(lists.tiles().size());
    num_items_ = static_cast<int64_t>(lists.items().size());
    return Upload(lists, rows * row_bytes);
  }

  void MeasureDecode(int64_t rows, int64_t slots, KvBits bits) {
    const Lists lists = ListRows(rows, slots - 1, 1, bits);
    const int64_t width = kHeads * kHeadDim;
    const int64_t out = lists.end + rows * width * 4;
    kernels::DecodeAttentionArgs args;
    args.q = At<float>(lists.end);
    args.q_stride = args.out_stride = width;
    args.out = At<float>(out);
    args.rows = lists.rows;
    args.items = lists.items;
    args.num_items = num_items_;
    args.partials = At<float>(out + rows * width * 4);
    args.num_heads = kHeads;
    args.layout = kernels::FullKvLayout(kHeads, kHeadDim, bits);
    const double seconds =
        BestSeconds(stream(), [&] { kernels::DecodeAttentionAsync(args, stream()); });
    const double bytes = static_cast<double>(rows * slots * KvSlotBytes(kHeads, kHeadDim, bits));
    Print({fmt::format("decode attention, {} rows of {} slots of {},{} bits", rows, slots, bits.key,
                       bits.value),
           bytes / seconds, "GB/s", memory_bytes_per_s_});
  }

  void MeasurePrefill(int64_t rows, int64_t tokens) {
    const Lists lists = ListRows(rows, 0, tokens);
    const int64_t width = kHeads * kHeadDim;
    kernels::PrefillAttentionArgs args;
    args.q = At<float>(lists.end);
    args.q_stride = args.out_stride = width;
    args.out = At<float>(lists.end + rows * tokens * width * 4);
    args.rows = lists.rows;
    args.tiles = lists.tiles;
    args.num_tiles = num_tiles_;
    args.num_heads = kHeads;
    args.layout = kernels::FullKvLayout(kHeads, kHeadDim);
    const double seconds =
        BestSeconds(stream(), [&] { kernels::PrefillAttentionAsync(args, stream()); });
    const double flops = 2.0 * static_cast<double>(rows * tokens * tokens * width);  // causal half
    Print({fmt::format("prefill attention, {} rows of {} tokens", rows, tokens), flops / seconds,
           "TFLOP/s", 0.0});
  }

  DeviceArena memory_;
  PinnedArena host_;
  ComputeQueue computes_;
  double memory_bytes_per_s_ = 0.0;
  int64_t num_tiles_ = 0;
  int64_t num_items_ = 0;
};

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  using namespace spillway;
  try {
    const GpuInfo gpu = OpenGpu(argc > 1 ? std::atoi(argv[1]) : 0);
    fmt::print(
        "{{\"gpu\":\"{}\",\"compute_capability\":\"{}.{}\",\"total_bytes\":{},"
        "\"used_at_start_bytes\":{}}}\n",
        gpu.name, gpu.major, gpu.minor, gpu.total_bytes, gpu.used_bytes);
    Bench().Run();
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", ErrorLine(error.code(), error.what()));
    return ExitStatus(error.code());
  }
  return 0;
}
