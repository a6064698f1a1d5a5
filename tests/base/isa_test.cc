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

TEST_F(IsaTest, Bf16NeedsAUnitForIt) {
  unsetenv("SPILLWAY_ISA");
  EXPECT_EQ(BestIsa(CpuCompute::kFp32), BestIsa());
  for (const Isa isa : SupportedBf16Isas()) {
    setenv("SPILLWAY_ISA", isa == Isa::kAmxBf16 ? "amx" : "avx512_vnni", 1);
    EXPECT_EQ(BestIsa(CpuCompute::kBf16), isa);
  }
  setenv("SPILLWAY_ISA", "portable", 1);
  try {
    BestIsa(CpuCompute::kBf16);
    FAIL() << "accepted bf16 without a unit for it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFlag);
    EXPECT_NE(std::string(error.what()).find("portable"), std::string::npos);
  }
}

TEST(ComputeOfTest, TellsByTheName) {
  EXPECT_EQ(ComputeOf("avx512_bf16"), CpuCompute::kBf16);
  EXPECT_EQ(ComputeOf("amx_bf16"), CpuCompute::kBf16);
  for (const Isa isa : SupportedIsas()) EXPECT_EQ(ComputeOf(IsaName(isa)), CpuCompute::kFp32);
  EXPECT_EQ(ComputeOf("sm_90"), CpuCompute::kFp32);
}

}  // namespace
}  // namespace spillway::kernels
