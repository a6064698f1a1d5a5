#include "src/formats/policy_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "spillway/error.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

GivenPolicy FromText(std::string_view text) {
  const TemporaryFolder folder(MemoryRoot());
  return ReadPolicy(folder.Write("policy.json", text));
}

Policy FullPolicy() {
  Policy policy;
  policy.weight_frac = {{0.1, 0.7, 0.2}};
  policy.kv_frac = {{1.0 / 3.0, 2.0 / 3.0, 0.0}};
  policy.activation_frac = {{0.0, 1.0, 0.0}};
  policy.gpu_batch_size = 48;
  policy.num_gpu_batches = 3;
  policy.cpu_attention = true;
  policy.prefill_chunk = 256;
  policy.kv_dtype = DType::kBF16;
  return policy;
}

void ExpectSame(const GivenPolicy& a, const Policy& b) {
  ASSERT_TRUE(a.placement && a.kv);
  EXPECT_EQ(a.placement->weights, b.weight_frac);
  EXPECT_EQ(a.placement->kv, b.kv_frac);
  EXPECT_EQ(a.placement->activations, b.activation_frac);
  EXPECT_EQ(a.gpu_batch_size, b.gpu_batch_size);
  EXPECT_EQ(a.num_gpu_batches, b.num_gpu_batches);
  EXPECT_EQ(a.cpu_attention, b.cpu_attention);
  EXPECT_EQ(a.prefill_chunk, b.prefill_chunk);
  EXPECT_EQ(a.kv_dtype, b.kv_dtype);
  EXPECT_EQ(a.kv_bits, b.kv_bits);
  EXPECT_EQ(a.kv->kind, b.kv.kind);
  EXPECT_EQ(a.kv->budget, b.kv.budget);
  EXPECT_EQ(a.kv->layer_budgets, b.kv.layer_budgets);
  EXPECT_EQ(a.kv->num_sinks, b.kv.num_sinks);
}

TEST(PolicyFile, ComesBackAsItWas) {
  Policy policy = FullPolicy();
  ExpectSame(FromText(PolicyJson(policy, ModelShape(), {"a test"})), policy);
  policy.kv.kind = KvPolicyKind::kH2o;
  policy.kv.budget = {{0.2, 0}, {}, TokenAmount{0.0, 64}};
  ExpectSame(FromText(PolicyJson(policy, ModelShape())), policy);
  policy.kv.kind = KvPolicyKind::kWindow;
  policy.kv_dtype = DType::kF16;
  policy.kv_bits = 4;
  ExpectSame(FromText(PolicyJson(policy, ModelShape())), policy);
  policy.kv_bits = {8, 4};
  policy.kv.num_sinks = 4;
  policy.kv.budget = {};
  policy.kv.layer_budgets = {{{0.1, 0}, {}, {}}, {{0.0, 12}, {}, TokenAmount{0.0, 7}}};
  ExpectSame(FromText(PolicyJson(policy, ModelShape())), policy);
  policy.kv.kind = KvPolicyKind::kH2o;
  policy.kv.num_sinks = 0;
  policy.kv.layer_budgets = {{{0.1, 0}, {}, {}}, {{}, TokenAmount{0.0, 7}, TokenAmount{0.3, 0}}};
  ExpectSame(FromText(PolicyJson(policy, ModelShape())), policy);
}

// Given, they would decode the codes.
TEST(PolicyFile, WeightsInPublishedCodesHaveNoBits) {
  ModelShape shape;
  shape.layer_codes = {DType::kInt4};
  Policy policy = FullPolicy();
  policy.weight_bits = 16;
  EXPECT_FALSE(FromText(PolicyJson(policy, shape)).weight_bits);
  policy.weight_bits = 8;
  EXPECT_EQ(FromText(PolicyJson(policy, shape)).weight_bits, 8);
}

TEST(PolicyFile, BudgetsPerHeadComeBackAsTheyWere) {
  KvPolicy kv;
  kv.kind = KvPolicyKind::kH2o;
  kv.head_budgets = {{{{0.1, 0}, {}, {}}, {{0.0, 12}, {}, {}}},
                     {{{}, TokenAmount{0.0, 7}, TokenAmount{0.3, 0}}, {{1.0, 0}, {}, {}}}};
  EXPECT_EQ(FromText(PolicyJson(kv, 16, {"calibrated"})).kv->head_budgets, kv.head_budgets);
}

TEST(PolicyFile, StatesWhatItStates) {
  KvPolicy kv;
  kv.kind = KvPolicyKind::kH2o;
  kv.layer_budgets = {{{0.1, 0}, {}, {}}, {{0.5, 0}, {}, {}}};
  const GivenPolicy given = FromText(PolicyJson(kv, {8, 4}, {"calibrated"}));
  ASSERT_TRUE(given.kv);
  EXPECT_EQ(given.kv->layer_budgets, kv.layer_budgets);
  EXPECT_EQ(given.kv_bits, KvBits(8, 4));
  EXPECT_FALSE(given.placement || given.gpu_batch_size || given.cpu_attention || given.kv_dtype);
}

// Returns what is wrong with a file of that text.
std::string Refusal(const std::string& text) {
  try {
    FromText(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPolicy);
    EXPECT_EQ(ExitStatus(error.code()), 3);
    return error.what();
  }
  return "accepted";
}

// The same with one change to a good one.
std::string Fault(const std::string& pointer, const json& value) {
  json document = json::parse(PolicyJson(FullPolicy(), ModelShape()));
  document[json::json_pointer(pointer)] = value;
  return Refusal(document.dump());
}

TEST(PolicyFile, RefusesFaultyBudgetsPerHead) {
  const auto fault = [](const char* kv) { return Fault("/kv", json::parse(kv)); };
  EXPECT_EQ(
      fault(R"({"policy": "h2o", "head_budgets": [[0.1, 0.2], [0.3, {"kept": {"tokens": 4}}]]})"),
      "accepted");
  EXPECT_THAT(fault(R"({"policy": "window", "head_budgets": [[0.1]]})"),
              HasSubstr("$.kv.head_budgets: belongs to the h2o policy"));
  EXPECT_THAT(fault(R"({"policy": "h2o", "head_budgets": [[0.1, 0.2], [0.3]]})"),
              HasSubstr("$.kv.head_budgets[1]: must have a budget for each KV head"));
  EXPECT_THAT(fault(R"({"policy": "h2o", "head_budgets": []})"),
              HasSubstr("$.kv.head_budgets: must have a list of budgets for each of 1"));
  EXPECT_THAT(fault(R"({"policy": "h2o", "head_budgets": [[0]]})"),
              HasSubstr("$.kv.head_budgets[0][0]: is 0, must be more"));
  EXPECT_THAT(fault(R"({"policy": "h2o", "head_budgets": [[1.5]]})"),
              HasSubstr("$.kv.head_budgets[0][0]"));
  EXPECT_THAT(
      fault(R"({"policy": "h2o", "head_budgets": [[0.1]], "budget": {"kept": {"frac": 1}}})"),
      HasSubstr("$.kv: must have either budget, layer_budgets or head_budgets"));
}

TEST(PolicyFile, RefusesFaultsWithTheirPath) {
  EXPECT_THAT(Fault("/colour", 1), HasSubstr("$.colour: unknown key"));
  EXPECT_THAT(Fault("/throughput", json::object()),
              HasSubstr("$: is a report, not a policy; give a file of search"));
  EXPECT_THAT(Refusal(R"({"version":1,"throughput":{},"policy":{}})"),
              HasSubstr("$: is a report, not a policy; a policy has the keys of its \"policy\""));
  EXPECT_THAT(Refusal(R"({"version":1,"cap_bytes":{}})"),
              HasSubstr("$: is a machine file, not a policy; give a file of search --output"));
  EXPECT_THAT(Refusal(R"({"traceEvents":[]})"), HasSubstr("$: is a trace, not a policy"));
  EXPECT_THAT(Fault("/version", 2), HasSubstr("$.version: is 2"));
  EXPECT_THAT(Fault("/weight_frac/gpu", 0.9), HasSubstr("$.weight_frac: the shares sum to 1.8"));
  EXPECT_THAT(Fault("/weight_frac/gpu", -0.1), HasSubstr("$.weight_frac.gpu"));
  EXPECT_THAT(Fault("/kv_frac/gpu", nullptr), HasSubstr("$.kv_frac.gpu"));
  EXPECT_THAT(Fault("/kv_frac/ssd", 0.0), HasSubstr("$.kv_frac.ssd: unknown key"));
  EXPECT_THAT(Fault("/gpu_batch_size", 0), HasSubstr("$.gpu_batch_size"));
  EXPECT_THAT(Fault("/gpu_batch_size", 4.0), HasSubstr("$.gpu_batch_size"));
  EXPECT_THAT(Fault("/cpu_attention", "yes"), HasSubstr("$.cpu_attention"));
  EXPECT_THAT(Fault("/kv_dtype", "fp8"), HasSubstr("$.kv_dtype: is \"fp8\""));
  EXPECT_THAT(Fault("/kv_bits", 5), HasSubstr("$.kv_bits: is 5, must be 16, 8 or 4"));
  EXPECT_THAT(Fault("/kv_bits", "4"), HasSubstr("$.kv_bits"));
  EXPECT_THAT(Fault("/kv_bits", 32), HasSubstr("$.kv_bits"));
  EXPECT_THAT(Fault("/kv_bits", 4), HasSubstr("$.kv_dtype: belongs to kv_bits 16"));
  EXPECT_THAT(Fault("/kv_bits", {16, 4}), HasSubstr("$.kv_dtype: belongs to kv_bits 16"));
  EXPECT_THAT(Fault("/kv_bits", {8, 5}), HasSubstr("$.kv_bits[1]: is 5, must be 16, 8 or 4"));
  EXPECT_THAT(Fault("/kv_bits", {8, 4, 4}), HasSubstr("$.kv_bits: must be one number, or those"));
  EXPECT_THAT(Fault("/weight_bits", 5), HasSubstr("$.weight_bits: is 5"));
  EXPECT_THAT(Fault("/weight_bits", 0), HasSubstr("$.weight_bits"));
  EXPECT_THAT(Fault("/weight_bits", "4"), HasSubstr("$.weight_bits"));
  EXPECT_THAT(Fault("/sources", {3}), HasSubstr("$.sources[0]"));
  for (const int bits : {16, 8, 4}) EXPECT_EQ(Fault("/weight_bits", bits), "accepted");
  EXPECT_THROW(FromText(R"({"version":1,"kv_frac":{"gpu":0,"cpu":1,"disk":0}})"), Error);
}

TEST(PolicyFile, RefusesFaultsOfTheKvPolicy) {
  const json kept = {{"kept", {{"frac", 0.2}}}};
  EXPECT_EQ(Fault("/kv", {{"policy", "h2o"}, {"budget", kept}}), "accepted");
  EXPECT_THAT(Fault("/kv", {{"policy", "lru"}, {"budget", kept}}), HasSubstr("$.kv.policy"));
  EXPECT_THAT(Fault("/kv", {{"policy", "h2o"}}), HasSubstr("$.kv: must have either budget"));
  EXPECT_THAT(Fault("/kv", {{"policy", "full"}, {"budget", kept}}), HasSubstr("keeps every token"));
  EXPECT_THAT(Fault("/kv", {{"policy", "h2o"}, {"budget", kept}, {"num_sinks", 4}}),
              HasSubstr("$.kv.num_sinks"));
  EXPECT_THAT(Fault("/kv", {{"policy", "h2o"}, {"layer_budgets", json::array({kept, 3})}}),
              HasSubstr("$.kv.layer_budgets[1]"));
  EXPECT_THAT(Fault("/kv", {{"policy", "h2o"}, {"layer_budgets", json::array()}}),
              HasSubstr("$.kv.layer_budgets"));
  EXPECT_THAT(Fault("/kv", {{"policy", "h2o"}, {"budget", {{"kept", {{"frac", 1.5}}}}}}),
              HasSubstr("$.kv.budget.kept.frac"));
  EXPECT_THAT(Fault("/kv", {{"policy", "h2o"}, {"budget", {{"kept", {{"tokens", 0}}}}}}),
              HasSubstr("$.kv.budget.kept.tokens"));
}

TEST(PolicyFile, RefusesBudgetsThatKeepNoRecentToken) {
  const auto fault = [](const char* policy, const json& budget) {
    return Fault("/kv", {{"policy", policy}, {"budget", budget}});
  };
  const auto tokens = [](int count) { return json{{"tokens", count}}; };
  EXPECT_EQ(fault("h2o", {{"kept", tokens(64)}, {"heavy", tokens(63)}}), "accepted");
  EXPECT_THAT(fault("h2o", {{"kept", tokens(64)}, {"heavy", tokens(64)}}),
              HasSubstr("$.kv.budget: has a heavy that leaves no recent token"));
  EXPECT_EQ(fault("h2o", {{"kept", tokens(64)}, {"recent", tokens(64)}}), "accepted");
  EXPECT_THAT(fault("h2o", {{"kept", tokens(64)}, {"recent", tokens(65)}}),
              HasSubstr("$.kv.budget: has a recent of more than kept"));
  EXPECT_THAT(fault("window", {{"kept", tokens(64)}, {"heavy", tokens(1)}}),
              HasSubstr("$.kv.budget: has heavy"));
  const auto sinks = [&](int count) {
    const json budgets = json::array({{{"kept", tokens(64)}}, {{"kept", tokens(4)}}});
    return Fault("/kv", {{"policy", "window"}, {"layer_budgets", budgets}, {"num_sinks", count}});
  };
  EXPECT_EQ(sinks(3), "accepted");
  EXPECT_THAT(sinks(4), HasSubstr("$.kv.layer_budgets[1]: leaves no recent token"));
}

TEST(PolicyFile, SaysThatThereIsNone) { EXPECT_THROW(ReadPolicy("/nowhere/policy.json"), Error); }

TEST(PolicyFile, TakesEveryExample) {
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(SPILLWAY_SOURCE_DIR "/examples/policies")) {
    EXPECT_NO_THROW(ReadPolicy(entry.path())) << entry.path();
    ++count;
  }
  EXPECT_GT(count, 5);
}

}  // namespace
}  // namespace spillway
