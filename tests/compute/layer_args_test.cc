#include "src/compute/layer_args.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/plan/plan_test_util.h"

namespace spillway {
namespace {

// The pieces of the first MLP's first matrix under a placement of weights, their rows added up.
struct Pieces {
  std::size_t count = 0;
  int64_t num_out = 0;
  bool lie_apart = true;
};
Pieces PiecesOf(const PerTier<double>& weight_frac) {
  Policy policy;
  policy.weight_frac = weight_frac;
  policy.kv_frac[Tier::kCpu] = policy.activation_frac[Tier::kCpu] = 1.0;
  policy.gpu_batch_size = policy.num_gpu_batches = 1;
  const Plan plan =
      MakePlan(*BuiltInShape("opt-1.3b"), MachineWith(int64_t{1} << 40, int64_t{1} << 40),
               Requests(1, 10, 6), policy, kNeeds);
  const HostArena arena(plan.arena_bytes[Tier::kCpu]);  // of which nothing is touched
  LayerArgs layer(plan, arena);
  std::array<float, 1> at = {};
  const std::array up = {
      LayerArgs::Linear{TensorRole::kUpWeight, TensorRole::kUpWeight, {at.data(), 8192}}};
  const kernels::MatmulArgs args = layer.Matmul(plan.layers[2], {at.data(), 2048}, 1, up, {});
  Pieces found;
  const std::byte* end = nullptr;
  for (const kernels::MatmulPiece& piece : args.pieces) {
    EXPECT_EQ(piece.y, at.data() + found.num_out);
    const auto* begin = static_cast<const std::byte*>(piece.weight);
    found.lie_apart = found.lie_apart && begin != end;
    end = begin + piece.num_out * args.in * 2;
    found.num_out += piece.num_out;
    ++found.count;
  }
  return found;
}

TEST(LayerArgsTest, TilesThatLieTogetherAreOnePiece) {
  // 32 MiB, 16 tiles; those from disk are read one by one.
  for (const auto& [cpu, pieces] : {std::pair{1.0, 1U}, {0.0, 1U}, {0.5, 2U}}) {
    const Pieces found = PiecesOf({{0.0, cpu, 1.0 - cpu}});
    EXPECT_EQ(found.count, pieces) << cpu;
    EXPECT_EQ(found.num_out, 8192);
    EXPECT_TRUE(found.lie_apart);
  }
}

}  // namespace
}  // namespace spillway
