// libtorch's fp32 product, apart from everything else: its include folder carries another version
// of fmt.
#pragma once

#include <cstdint>
#include <memory>

namespace spillway {

// x [rows, in] times W^T [in, out], both random; Run computes it once with at::linear.
class TorchLinear {
 public:
  TorchLinear(int64_t rows, int64_t in, int64_t out, int num_threads);
  ~TorchLinear();
  void Run();

 private:
  struct Tensors;
  std::unique_ptr<Tensors> tensors_;
};

}  // namespace spillway
