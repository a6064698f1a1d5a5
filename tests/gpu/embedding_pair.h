// EmbeddingPair: the same look-up on the host and on the GPU, of a table that lies in three pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/rows/embedding.h"
#include "tests/gpu/gpu_test_util.h"

namespace spillway::kernels {

class EmbeddingPair {
 public:
  static constexpr int64_t kCols = 200;
  static constexpr int64_t kTableRows = 30;

  // `table`: kTableRows rows of kCols of `dtype`.
  EmbeddingPair(const std::vector<std::byte>& table, DType dtype, Stream& stream)
      : table_(table, stream),
        pieces_(Pieces(table_.host().data(), dtype)),
        gpu_pieces_(Pieces(table_.data(), dtype), stream),
        ids_({0, 1, 14, 15, 27, 5}, stream),
        y_(std::vector<float>(ids_.host().size() * kCols, 0.0F), stream),
        expected_(y_.host()),
        on_host_{pieces_, dtype, kCols, 2, ids_.host(), expected_.data(), kCols},
        on_gpu_{gpu_pieces_.span(), dtype, kCols, 2, ids_.span(), y_.data(), kCols} {}

  const EmbeddingArgs& on_host() const { return on_host_; }
  const EmbeddingArgs& on_gpu() const { return on_gpu_; }

  const std::vector<float>& expected() const { return expected_; }
  const std::vector<float>& Download() { return y_.Download(); }

 private:
  static std::vector<EmbeddingPiece> Pieces(const std::byte* table, DType dtype) {
    std::vector<EmbeddingPiece> pieces;
    for (const auto& [begin, end] : {std::pair{0, 1}, {1, 17}, {17, 30}})
      pieces.push_back({table + begin * RowBytes(dtype, kCols), begin, end});
    return pieces;
  }

  GpuArray<std::byte> table_;
  std::vector<EmbeddingPiece> pieces_;
  GpuArray<EmbeddingPiece> gpu_pieces_;
  GpuArray<int32_t> ids_;
  GpuArray<float> y_;
  std::vector<float> expected_;
  EmbeddingArgs on_host_;
  EmbeddingArgs on_gpu_;
};

}  // namespace spillway::kernels
