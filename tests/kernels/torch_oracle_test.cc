// Matmul against libtorch. The one test that includes ATen: it takes seconds to compile, and its
// folder carries another fmt.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/matmul/matmul.h"
#include "tests/kernels/kernel_test_util.h"

namespace spillway::kernels {
namespace {

class TorchOracleTest : public testing::TestWithParam<IsaAndDType> {};

INSTANTIATE_TEST_SUITE_P(All, TorchOracleTest, testing::ValuesIn(AllCases()), ParamName);

// at::linear in double on the same 16-bit weights, and in fp32 as a yardstick.
TEST_P(TorchOracleTest, LinearInDouble) {
  const c10::InferenceMode no_autograd;
  at::manual_seed(1);
  at::set_num_threads(1);  // a thread sanitizer does not see how OpenMP's wait for each other
  const at::ScalarType type = GetParam().dtype == DType::kF16 ? at::kHalf : at::kBFloat16;
  ThreadPool pool(2);
  for (const auto& [rows, in, out] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 768, 300}, {9, 2048, 130}, {70, 1100, 77}}) {
    const at::Tensor x = at::randn({rows, in});
    const at::Tensor weight = (at::randn({out, in}) * 0.05).to(type);
    const at::Tensor bias = at::randn({out});
    at::Tensor y = at::empty({rows, out});
    MatmulPiece piece;
    piece.weight = weight.data_ptr();
    piece.weight_dtype = GetParam().dtype;
    piece.num_out = out;
    piece.bias = bias.const_data_ptr<float>();
    piece.y = y.mutable_data_ptr<float>();
    piece.y_stride = out;
    MatmulArgs args;
    args.x = x.const_data_ptr<float>();
    args.x_stride = in;
    args.rows = rows;
    args.in = in;
    args.pieces = {&piece, 1};
    AlignedBytes workspace(MatmulWorkspaceBytes(rows, in, 2, GetParam().isa));
    Matmul(args, workspace.span(), pool, GetParam().isa);
    const at::Tensor exact =
        at::linear(x.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble));
    const double ours = (y.to(at::kDouble) - exact).abs().max().item<double>();
    const at::Tensor torch_y = at::linear(x, weight.to(at::kFloat), bias);
    const double torch = (torch_y.to(at::kDouble) - exact).abs().max().item<double>();
    // AMX drops what lies below 17 bits of x and 16 of a product.
    const double dropped =
        GetParam().isa == Isa::kAmx ? 2e-5 * 0.05 * std::sqrt(static_cast<double>(in)) : 0;
    EXPECT_LT(ours, 2.0 * torch + dropped + 1e-6) << "rows " << rows << " in " << in;
  }
}

}  // namespace
}  // namespace spillway::kernels
