// GpuProducts: the norms and products of a layer's program on a GPU, in the order of the program.
// Products of 16-bit weights read x rounded to 16 bits: what only products read is rounded by the
// kernel that makes it, a norm or the last step of the product before, and is not written in fp32.
// Bits are those of the operations one by one (kernels/rows/norm.h, kernels/matmul/matmul_gpu.h).
// Thread rule: one thread. Allocates nothing once it is made.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/matmul/matmul_gpu.h"
#include "kernels/rows/norm.h"
#include "spillway/plan.h"

namespace spillway {

class GpuProducts {
 public:
  // A stream and the memory of its products. Nothing but products of 16-bit weights reads `normed`,
  // nothing but products `inner`; they are null where a layer has none.
  struct Lane {
    Stream& stream;
    std::span<std::byte> workspace;
    float* normed;
    float* inner;
  };

  // Throws: Error kGpu.
  explicit GpuProducts(const Plan& plan);

  // As GpuMatmul has it.
  void ChooseForManyRows(std::span<std::byte> scratch, Stream& stream) {
    matmul_.ChooseForManyRows(scratch, stream);
  }

  void Norm(const kernels::NormArgs& args, const Lane& lane);
  // Pieces of any types: x is rounded or packed once for those that take it alike.
  void Multiply(const kernels::MatmulArgs& args, const Lane& lane);

 private:
  void MultiplyAlike(const kernels::MatmulArgs& args, const Lane& lane);
  void MultiplyPacked(const kernels::MatmulArgs& args, const Lane& lane);
  void Round(const kernels::MatmulArgs& args, const Lane& lane);
  void FinishInner(const Lane& lane);
  void RoundInner(const kernels::MatmulArgs& args, const Lane& lane);

  DType dtype_;  // of all weights but published codes
  kernels::GpuMatmul matmul_;
  const std::byte* workspace_ = nullptr;     // it begins with x_, rounded
  const float* x_ = nullptr;                 // null: with nothing
  std::vector<kernels::FinishArgs> inner_;   // pieces of lane.inner that are not finished
  std::vector<kernels::MatmulPiece> alike_;  // of a call, that take x alike
};

}  // namespace spillway
