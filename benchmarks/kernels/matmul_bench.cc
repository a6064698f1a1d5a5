#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "benchmarks/kernels/subjects.h"
#include "benchmarks/torch_linear.h"
#include "kernels/matmul/matmul.h"

namespace spillway::kernels {
namespace {

// A product of x [rows, in] over as many copies of its matrix [out, in] as exceed any cache, taken
// in turn.
struct Product {
  static constexpr int64_t kMaxRows = 512;

  int64_t in;
  int64_t out;
  DType dtype;
  int num_threads;
  Isa isa;
  int64_t weight_bytes = out * RowBytes(dtype, in);
  int64_t copies = std::max<int64_t>(1, kFarBytes / weight_bytes);
  Bytes weights = IsQuantised(dtype) ? QuantisedBytes(copies * out, in, dtype)
                                     : RandomBytes(copies * in * out, dtype);
  Bytes x = RandomBytes(kMaxRows * in, DType::kF32);
  Bytes y = Allocate(kMaxRows * out * 4);
  int64_t workspace_bytes = MatmulWorkspaceBytes(kMaxRows, in, num_threads, isa);
  Bytes workspace = Allocate(workspace_bytes);
  Activation activation = Activation::kNone;
  Bytes times = {nullptr, &std::free};  // [kMaxRows, out]: a gated product's
  int64_t num_calls = 0;

  void Run(int64_t rows, ThreadPool& pool);
};

void Product::Run(int64_t rows, ThreadPool& pool) {
  MatmulPiece piece;
  piece.weight = weights.get() + num_calls++ % copies * weight_bytes;
  piece.weight_dtype = dtype;
  piece.num_out = out;
  piece.y = reinterpret_cast<float*>(y.get());
  piece.y_stride = out;
  piece.times = reinterpret_cast<const float*>(times.get());
  piece.times_stride = out;
  MatmulArgs args;
  args.x = reinterpret_cast<const float*>(x.get());
  args.x_stride = in;
  args.rows = rows;
  args.in = in;
  args.activation = activation;
  args.pieces = {&piece, 1};
  Matmul(args, {workspace.get(), static_cast<size_t>(workspace_bytes)}, pool, isa);
}

// Seconds of the same product by libtorch; 0 where it is not compared.
double TorchSeconds(const Bench& bench, const Product& product, int64_t rows) {
#if defined(SPILLWAY_TORCH)
  if (bench.options().torch && product.dtype == DType::kF16 && !product.times && rows >= 8) {
    TorchLinear linear(rows, product.in, product.out, product.num_threads);
    return bench.BestSeconds([&] { linear.Run(); });
  }
#else
  static_cast<void>(bench), static_cast<void>(product), static_cast<void>(rows);
#endif
  return 0;
}

void BenchProduct(Bench& bench, std::string_view name, Product& product) {
  const Options& options = bench.options();
  for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}) {
    if (options.quick && (rows == 2 || rows == 64 || rows == 256)) continue;
    const double seconds = bench.BestSeconds([&] { product.Run(rows, bench.pool()); });
    bench.Print({.op = fmt::format("{} {}", name, DTypeName(product.dtype)),
                 .shape = fmt::format("{} -> {}", product.in, product.out),
                 .rows = rows,
                 .seconds = seconds,
                 .bytes = static_cast<double>(product.weight_bytes),
                 .flops = 2.0 * static_cast<double>(rows * product.in * product.out),
                 .torch_s = TorchSeconds(bench, product, rows)});
  }
}

Product MakeProduct(const Bench& bench, int64_t in, int64_t out, DType dtype) {
  return {in, out, dtype, bench.options().num_threads, bench.options().isa};
}

void BenchShape(Bench& bench, int64_t in, int64_t out, DType dtype) {
  Product product = MakeProduct(bench, in, out, dtype);
  BenchProduct(bench, "matmul", product);
}

// silu(x W^T) * times: of the widths of Llama-3.2-1B.
void BenchGated(Bench& bench, DType dtype) {
  Product product = MakeProduct(bench, 2048, 8192, dtype);
  product.activation = Activation::kSilu;
  product.times = RandomBytes(Product::kMaxRows * product.out, DType::kF32);
  BenchProduct(bench, "gated", product);
}

struct DecoderSizes {
  const char* model;
  int64_t hidden;
  int64_t num_layers;
};

// The products of a decode step of one row, decoder layers of a model, and memory reads in turns.
void BenchOneRow(Bench& bench, const DecoderSizes& of, DType dtype) {
  const auto product = [&](int64_t in, int64_t out) { return MakeProduct(bench, in, out, dtype); };
  std::array<Product, 4> layer = {product(of.hidden, 3 * of.hidden), product(of.hidden, of.hidden),
                                  product(of.hidden, 4 * of.hidden),
                                  product(4 * of.hidden, of.hidden)};
  int64_t bytes = 0;
  for (const Product& one : layer) bytes += of.num_layers * one.weight_bytes;
  const Bytes far_bytes = RandomBytes(kFarBytes / 2, DType::kF16);
  MemoryRead read(bench, far_bytes.get(), bytes);
  const auto products = [&] {
    for (int64_t i = 0; i < of.num_layers; ++i) {
      for (Product& one : layer) one.Run(1, bench.pool());
    }
  };
  const std::vector<double> ratios = bench.MedianRatios({products, [&] { read.Run(); }});
  fmt::print("in turns, {}, {} layers of {} at 1 row: {:.0f} % of the memory's rate\n",
             DTypeName(dtype), of.num_layers, of.model, 100 * ratios[1] * read.WantedFrac());
  std::fflush(stdout);
}

}  // namespace

void BenchMatmul(Bench& bench) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kQ8, DType::kQ4, DType::kMxfp4,
                            DType::kInt8, DType::kInt4, DType::kFp8, DType::kGgufQ8, DType::kGgufQ4,
                            DType::kGgufM4, DType::kGgufK4, DType::kGgufK6}) {
    BenchShape(bench, 2048, 2048, dtype);
    BenchShape(bench, 2048, 8192, dtype);
    BenchShape(bench, 8192, 2048, dtype);
    BenchGated(bench, dtype);
    if (!bench.options().quick) BenchShape(bench, 2048, 50272, dtype);
    if (IsQuantised(dtype)) continue;
    BenchOneRow(bench, {"opt-125m", 768, 12}, dtype);
    BenchOneRow(bench, {"opt-1.3b", 2048, 1}, dtype);
  }
}

}  // namespace spillway::kernels
