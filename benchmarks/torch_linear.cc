#include "benchmarks/torch_linear.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace spillway {

struct TorchLinear::Tensors {
  at::Tensor x;
  at::Tensor weight;
};

TorchLinear::TorchLinear(int64_t rows, int64_t in, int64_t out, int num_threads)
    : tensors_(std::make_unique<Tensors>(Tensors{at::rand({rows, in}), at::rand({out, in})})) {
  at::set_num_threads(num_threads);
}

TorchLinear::~TorchLinear() = default;

void TorchLinear::Run() {
  const c10::InferenceMode no_autograd;
  at::linear(tensors_->x, tensors_->weight);
}

}  // namespace spillway
