// The work that `profile` measures on a GPU: it runs, and says how much it was.
#include <cmath>

#include "src/gpu/cuda_probe.h"
#include "tests/gpu/gpu_test_util.h"

namespace spillway {
namespace {

constexpr int64_t kHidden = 128;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kRows = 64;
constexpr int64_t kSlots = 64;
constexpr int64_t kDecodeRows = 2;

class ProbeTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    CudaProbe::Sizes sizes;
    sizes.hidden = kHidden;
    sizes.head_dim = kHeadDim;
    sizes.rows = kRows;
    sizes.product_rows = 2 * kRows;
    sizes.slots = kSlots;
    sizes.decode_rows = kDecodeRows;
    sizes.norm_rows = 8;
    sizes.far_bytes = 1 << 20;
    sizes.host_bytes = 1 << 17;
    probe_ = std::make_unique<CudaProbe>(sizes, 0);
  }

  static void ExpectSome(const GpuProbe::Work& work, double unit) {
    EXPECT_GT(work.seconds, 0.0);
    EXPECT_GT(work.units, 0.0);
    EXPECT_EQ(std::fmod(work.units, unit), 0.0) << work.units << " of " << unit;
  }

  std::unique_ptr<CudaProbe> probe_;
};

TEST_F(ProbeTest, CopiesAndReadsMemory) {
  ExpectSome(probe_->CopyToGpu(), 1 << 17);
  ExpectSome(probe_->CopyFromGpu(), 1 << 17);
  ExpectSome(probe_->ReadMemory(), 1 << 20);
}

TEST_F(ProbeTest, Multiplies) {
  for (const DType weights :
       {DType::kF16, DType::kQ8, DType::kQ4, DType::kMxfp4, DType::kFp8, DType::kGgufQ8,
        DType::kGgufQ4, DType::kGgufM4, DType::kGgufK4, DType::kGgufK6}) {
    for (const int64_t rows : {int64_t{1}, 2 * kRows}) {
      ExpectSome(probe_->Multiply(rows, kHidden, weights),
                 static_cast<double>(2 * rows * kHidden * kHidden));
    }
  }
  ExpectSome(probe_->Normalize(), 8 * kHidden);
}

TEST_F(ProbeTest, Attends) {
  ExpectSome(probe_->AttendPrefill(kHeadDim, kRows), 4.0 * kHidden * kRows * (kRows + 1) / 2);
  ExpectSome(probe_->AttendPrefill(kHeadDim / 2, kRows / 4),
             4.0 * kHidden * 4 * (kRows / 4) * (kRows / 4 + 1) / 2);
  ExpectSome(probe_->AttendDecode(), kDecodeRows * kSlots * 2 * kHidden * 2);
  // A fifth of the slots, half and half.
  ExpectSome(probe_->EvictDecode(), kDecodeRows * 2 * (kSlots / 10) * 2 * kHidden * 2);
  ExpectSome(probe_->Launch(), 1.0);
}

TEST_F(ProbeTest, EvictsAPromptOfAllSlots) {
  ExpectSome(probe_->EvictPrefill(), 4.0 * kHidden * kSlots * (kSlots + 1) / 2);
}

}  // namespace
}  // namespace spillway
