#include "src/base/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "spillway/error.h"

namespace spillway::kernels {
namespace {

class IsaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* value = std::getenv("SPILLWAY_ISA")) before_ = value;
  }
  void TearDown() override {
    before_.empty() ? unsetenv("SPILLWAY_ISA") : setenv("SPILLWAY_ISA", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

TEST_F(IsaTest, PortableIsAlwaysThereAndTheOrderRises) {
  const std::vector<Isa> isas = SupportedIsas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::kPortable);
  EXPECT_TRUE(std::is_sorted(isas.begin(), isas.end()));
}

TEST_F(IsaTest, TheEnvironmentChooses) {
  unsetenv("SPILLWAY_ISA");
  EXPECT_EQ(BestIsa(), SupportedIsas().back());
  for (const Isa isa : SupportedIsas()) {
    setenv("SPILLWAY_ISA", std::string(IsaName(isa)).c_str(), 1);
    EXPECT_EQ(BestIsa(), isa);
  }
}

TEST_F(IsaTest, AnUnknownNameIsTheUsersMistake) {
  setenv("SPILLWAY_ISA", "mmx", 1);
  try {
    BestIsa();
    FAIL() << "accepted mmx";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFlag);
    EXPECT_NE(std::string(error.what()).find("mmx"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("portable"), std::string::npos);
  }
}

TEST_F(IsaTest, FormsForRoundedInputsNeedAUnitForThem) {
  unsetenv("SPILLWAY_ISA");
  EXPECT_EQ(BestIsa(CpuCompute::kFp32), BestIsa());
  for (const CpuCompute compute : {CpuCompute::kBf16, CpuCompute::kInt8}) {
    unsetenv("SPILLWAY_ISA");
    if (const std::vector<Isa> isas = SupportedIsas(compute); !isas.empty()) {
      EXPECT_EQ(BestIsa(compute), isas.back());
      EXPECT_EQ(ComputeOf(IsaName(isas.back())), compute);
    }
    setenv("SPILLWAY_ISA", "portable", 1);
    try {
      BestIsa(compute);
      FAIL() << "accepted " << CpuComputeName(compute) << " without a unit for it";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFlag);
      EXPECT_NE(std::string(error.what()).find("portable"), std::string::npos);
    }
  }
}

TEST_F(IsaTest, ACapLeavesTheFormsOfItsUnit) {
  setenv("SPILLWAY_ISA", "avx512_vnni", 1);
  const std::vector<Isa> bf16 = SupportedIsas(CpuCompute::kBf16);
  if (SupportedIsas(CpuCompute::kInt8).empty()) GTEST_SKIP() << "this machine has no VNNI";
  EXPECT_EQ(BestIsa(CpuCompute::kInt8), Isa::kVnniInt8);
  if (std::ranges::find(bf16, Isa::kAvx512Bf16) != bf16.end()) {
    EXPECT_EQ(BestIsa(CpuCompute::kBf16), Isa::kAvx512Bf16);
  }
}

TEST(RoundsTest, FormsTellWhatTheyRound) {
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAmx}) {
    EXPECT_FALSE(RoundsToBytes(isa)) << IsaName(isa);
    EXPECT_FALSE(RoundsToBf16(isa)) << IsaName(isa);
  }
  for (const Isa isa : {Isa::kVnniInt8, Isa::kAmxInt8}) {
    EXPECT_TRUE(RoundsToBytes(isa)) << IsaName(isa);
    EXPECT_EQ(RoundsToBf16(isa), isa != Isa::kVnniInt8) << IsaName(isa);
  }
  for (const Isa isa : {Isa::kAvx512Bf16, Isa::kAmxBf16}) {
    EXPECT_FALSE(RoundsToBytes(isa)) << IsaName(isa);
    EXPECT_TRUE(RoundsToBf16(isa)) << IsaName(isa);
  }
}

TEST(ComputeOfTest, TellsByTheName) {
  EXPECT_EQ(ComputeOf("avx512_bf16"), CpuCompute::kBf16);
  EXPECT_EQ(ComputeOf("amx_bf16"), CpuCompute::kBf16);
  for (const char* name : {"avx512_vnni_int8", "amx_int8"})
    EXPECT_EQ(ComputeOf(name), CpuCompute::kInt8);
  for (const Isa isa : SupportedIsas()) EXPECT_EQ(ComputeOf(IsaName(isa)), CpuCompute::kFp32);
  EXPECT_EQ(ComputeOf("sm_90"), CpuCompute::kFp32);
}

}  // namespace
}  // namespace spillway::kernels
