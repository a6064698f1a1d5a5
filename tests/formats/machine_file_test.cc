// Machine files: what is written is what is read, and every fault is refused by its place.
#include "src/formats/machine_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "spillway/error.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Machine FromText(std::string_view text) {
  const TemporaryFolder folder(MemoryRoot());
  return ReadMachine(folder.Write("m.json", text));
}

DeviceRates Rates(double scale) {
  DeviceRates rates;
  rates.memory_bytes_per_s = 1.0 / 3.0 * 1e11 * scale;
  rates.matmul = {{1, 1e10 * scale}, {8, 7e10 * scale}, {512, 1.1e12 * scale}};
  rates.prefill_attention_flops_per_s = 2e11 * scale;
  rates.decode_attention_bytes_per_s = 3e10 * scale;
  rates.launch_s = 1e-5 / scale;
  return rates;
}

Machine FullMachine() {
  Machine machine;
  machine.name = "a \"GPU\" and a µ-processor";
  machine.isa = "avx2";
  machine.num_threads = 7;
  machine.device = Tier::kGpu;
  machine.cap_bytes = {{int64_t{16} << 30, int64_t{208} << 30, 1'500'000'000'001}};
  machine.rates.link_bytes_per_s = {{1.6e9, 1.1e9, 1.2e10, 0.1e9 + 0.2}};
  machine.rates.gpu = Rates(40.0);
  machine.rates.cpu = Rates(1.0);
  machine.flexgen = FlexGenRates{1.5e9, 2.5e9, 3.5e9, 4.5e9,  5.5e9,  6.5e9,
                                 7.5e9, 8.5e9, 9.5e9, 10.5e9, 11.5e9, 0.125};
  machine.date = "2026-01-02";
  machine.sources = {"a data sheet", "a guess"};
  return machine;
}

void ExpectSame(const DeviceRates& a, const DeviceRates& b) {
  EXPECT_EQ(a.memory_bytes_per_s, b.memory_bytes_per_s);
  ASSERT_EQ(a.matmul.size(), b.matmul.size());
  for (std::size_t i = 0; i < a.matmul.size(); ++i) {
    EXPECT_EQ(a.matmul[i].rows, b.matmul[i].rows);
    EXPECT_EQ(a.matmul[i].flops_per_s, b.matmul[i].flops_per_s);
  }
  EXPECT_EQ(a.prefill_attention_flops_per_s, b.prefill_attention_flops_per_s);
  EXPECT_EQ(a.decode_attention_bytes_per_s, b.decode_attention_bytes_per_s);
  EXPECT_EQ(a.launch_s, b.launch_s);
}

TEST(MachineFile, EveryFieldComesBack) {
  const Machine machine = FullMachine();
  const Machine read = FromText(MachineJson(machine));
  EXPECT_EQ(read.name, machine.name);
  EXPECT_EQ(read.isa, machine.isa);
  EXPECT_EQ(read.num_threads, machine.num_threads);
  EXPECT_EQ(read.device, machine.device);
  EXPECT_EQ(read.cap_bytes, machine.cap_bytes);
  EXPECT_EQ(read.rates.link_bytes_per_s.values, machine.rates.link_bytes_per_s.values);
  ExpectSame(read.rates.gpu, machine.rates.gpu);
  ExpectSame(read.rates.cpu, machine.rates.cpu);
  EXPECT_EQ(read.date, machine.date);
  EXPECT_EQ(read.sources, machine.sources);
  ASSERT_TRUE(read.flexgen);
  EXPECT_EQ(read.flexgen->cpu_to_gpu_bytes_per_s, 1.5e9);
  EXPECT_EQ(read.flexgen->gpu_to_cpu_kv_bytes_per_s, 2.5e9);
  EXPECT_EQ(read.flexgen->gpu_to_cpu_hidden_bytes_per_s, 3.5e9);
  EXPECT_EQ(read.flexgen->disk_read_bytes_per_s, 4.5e9);
  EXPECT_EQ(read.flexgen->disk_write_bytes_per_s, 5.5e9);
  EXPECT_EQ(read.flexgen->prefill_matmul_flops_per_s, 6.5e9);
  EXPECT_EQ(read.flexgen->decode_matmul_flops_per_s, 7.5e9);
  EXPECT_EQ(read.flexgen->prefill_attention_flops_per_s, 8.5e9);
  EXPECT_EQ(read.flexgen->decode_attention_flops_per_s, 9.5e9);
  EXPECT_EQ(read.flexgen->cpu_attention_flops_per_s, 10.5e9);
  EXPECT_EQ(read.flexgen->gpu_memory_bytes_per_s, 11.5e9);
  EXPECT_EQ(read.flexgen->launch_s, 0.125);
}

TEST(MachineFile, WhatMayBeLeftOutComesBackToo) {
  Machine machine = FullMachine();
  machine.disturbed = "others took 20 % of the processor";
  machine.rates.beside_compute[Link::kDiskRead] = {0.75, 0.5};
  machine.rates.disk_both_frac = 0.625;
  DeviceRates& cpu = machine.rates.cpu;
  cpu.norm_elements_per_s = 1.5e9;
  cpu.logits_per_s = 2.5e9;
  cpu.narrow_attention_flops_per_s = 3.5e9;
  cpu.short_attention_flops_per_s = 4.5e9;
  cpu.first_touch_bytes_per_s = 5.5e9;
  cpu.evicting_prefill_flops_per_s = 6.5e9;
  cpu.evicting_decode_bytes_per_s = 7.5e9;
  cpu.matmul[1].narrow_flops_per_s = 8.5e9;
  cpu.matmul_codes = {
      {DType::kQ8, {{1, 9.5e9, 0.0}}},     {DType::kQ4, {{1, 10.5e9, 0.0}, {4, 11.5e9, 0.0}}},
      {DType::kMxfp4, {{1, 12.5e9, 0.0}}}, {DType::kFp8, {{1, 11.5e9, 0.0}}},
      {DType::kGgufQ8, {{1, 1.5e9, 0.0}}}, {DType::kGgufQ4, {{1, 2.5e9, 0.0}}},
      {DType::kGgufM4, {{1, 3.5e9, 0.0}}}, {DType::kGgufK4, {{1, 4.5e9, 0.0}}},
      {DType::kGgufK6, {{1, 5.5e9, 0.0}}}};
  const Machine read = FromText(MachineJson(machine));
  EXPECT_EQ(read.disturbed, machine.disturbed);
  EXPECT_EQ(read.rates.beside_compute.values, machine.rates.beside_compute.values);
  EXPECT_EQ(read.rates.disk_both_frac, 0.625);
  EXPECT_EQ(read.rates.cpu, machine.rates.cpu);
  EXPECT_EQ(read.rates.gpu, machine.rates.gpu);
}

TEST(MachineFile, WithoutAGpuItsRatesMayBeLeftOut) {
  Machine machine = FullMachine();
  machine.device = Tier::kCpu;
  machine.cap_bytes[Tier::kGpu] = 0;
  machine.rates.gpu = {};
  machine.rates.link_bytes_per_s[Link::kCpuToGpu] = 0.0;
  machine.rates.link_bytes_per_s[Link::kGpuToCpu] = 0.0;
  machine.flexgen.reset();
  const std::string text = MachineJson(machine);
  const json written = json::parse(text);
  EXPECT_FALSE(written.contains("gpu"));
  EXPECT_FALSE(written.contains("flexgen"));
  EXPECT_FALSE(written["link_bytes_per_s"].contains("cpu_to_gpu"));
  const Machine read = FromText(text);
  EXPECT_EQ(read.device, Tier::kCpu);
  EXPECT_TRUE(read.rates.gpu.matmul.empty());
  EXPECT_EQ(read.rates.link_bytes_per_s[Link::kCpuToGpu], 0.0);
  ExpectSame(read.rates.cpu, machine.rates.cpu);
}

// The refusal of a text; fails the test when there is none.
std::string Refusal(const std::string& text) {
  try {
    FromText(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMachine);
    EXPECT_EQ(ExitStatus(error.code()), 3);
    EXPECT_LE(std::string_view(error.what()).size(), 300U);
    return error.what();
  }
  ADD_FAILURE() << "taken: " << text;
  return "";
}

TEST(MachineFile, SharesLieBetweenNothingAndAll) {
  for (const char* key : {"link_frac", "compute_frac"}) {
    for (const double bad : {0.0, -0.5, 1.5}) {
      json file = json::parse(MachineJson(FullMachine()));
      file["beside_compute"]["disk_read"] = {{"link_frac", 0.5}, {"compute_frac", 0.5}};
      file["beside_compute"]["disk_read"][key] = bad;
      EXPECT_THAT(Refusal(file.dump()),
                  HasSubstr(std::string("$.beside_compute.disk_read.") + key + ": is "))
          << bad;
    }
  }
}

TEST(MachineFile, EveryKeyIsRequiredOrKnownAndTyped) {
  const json good = json::parse(MachineJson(FullMachine()));
  // Each place of the file in turn gets a value that no place takes.
  const json places = good.flatten();
  for (const auto& [pointer, value] : places.items()) {
    std::string path = "$";
    for (json::json_pointer at(pointer); !at.empty(); at.pop_back()) {
      const std::string word = at.back();
      const bool index = word.find_first_not_of("0123456789") == std::string::npos;
      path.insert(1, index ? "[" + word + "]" : "." + word);
    }
    for (const json& bad : {json(nullptr), json(true), json(json::object())}) {
      json file = good;
      file[json::json_pointer(pointer)] = bad;
      EXPECT_THAT(Refusal(file.dump()), HasSubstr("m.json: " + path + ": is ")) << file.dump();
    }
    if (!value.is_number()) continue;
    for (const json& bad : {json(-1), json(-0.5), json("1"), json(1e300)}) {
      json file = good;
      file[json::json_pointer(pointer)] = bad;
      EXPECT_THAT(Refusal(file.dump()), HasSubstr("m.json: " + path + ": is ")) << file.dump();
    }
    json marked = good;
    marked[json::json_pointer(pointer)] = "NUMBER";
    std::string text = marked.dump();
    text.replace(text.find("\"NUMBER\""), 8, "NaN");
    EXPECT_THAT(Refusal(text), HasSubstr("m.json: " + path + ": is not valid JSON"));
  }
}

TEST(MachineFile, UnknownAndMissingKeysAreNamed) {
  const json good = json::parse(MachineJson(FullMachine()));
  for (const char* section :
       {"", "/cap_bytes", "/link_bytes_per_s", "/cpu", "/gpu", "/cpu/matmul/1", "/flexgen"}) {
    const json::json_pointer at(section);
    json file = good;
    file[at]["speed"] = 1;
    EXPECT_THAT(Refusal(file.dump()), HasSubstr(".speed: unknown key")) << section;
    for (const auto& [key, value] : good[at].items()) {
      if (std::string(section).empty() && (key == "isa" || key == "threads" || key == "date" ||
                                           key == "sources" || key == "flexgen"))
        continue;
      file = good;
      file[at].erase(key);
      EXPECT_THAT(Refusal(file.dump()), HasSubstr("the key \"" + key + "\" is missing")) << section;
    }
  }
}

TEST(MachineFile, OtherFaults) {
  json good = json::parse(MachineJson(FullMachine()));
  json file = good;
  file["version"] = 2;
  file["added_later"] = 1;
  EXPECT_THAT(Refusal(file.dump()), HasSubstr("$.version: is 2, this program reads 1"));
  EXPECT_THAT(Refusal(R"({"version": 1, "throughput": {}})"),
              HasSubstr("$: is a report, not a machine file; give a file of profile --output"));
  EXPECT_THAT(Refusal(R"({"version": 1, "kv_bits": 8})"), HasSubstr("$: is a policy, not a"));
  file = good;
  file["device"] = "tpu";
  EXPECT_THAT(Refusal(file.dump()), HasSubstr("$.device: is \"tpu\", must be gpu or cpu"));
  file = good;
  file["cpu"]["matmul"][1]["rows"] = 1;
  EXPECT_THAT(Refusal(file.dump()), HasSubstr("$.cpu.matmul[1].rows: is 1, must be an integer"));
  file = good;
  file["cpu"]["matmul"] = json::array();
  EXPECT_THAT(Refusal(file.dump()), HasSubstr("$.cpu.matmul: is an empty list"));
  file = good;
  file["link_bytes_per_s"]["disk_read"] = 0;
  EXPECT_THAT(Refusal(file.dump()), HasSubstr("$.link_bytes_per_s.disk_read: is 0, must be"));
  file["link_bytes_per_s"]["disk_read"] = 2.1;  // GB/s
  EXPECT_THAT(Refusal(file.dump()), HasSubstr("$.link_bytes_per_s.disk_read: is 2.1, must be"));
  file = good;
  file["cap_bytes"]["cpu"] = 1.5;
  EXPECT_THAT(Refusal(file.dump()), HasSubstr("$.cap_bytes.cpu: is 1.5, must be an integer"));
  std::string twice = good.dump();
  twice.insert(1, "\"name\":\"x\",");
  EXPECT_THAT(Refusal(twice), HasSubstr("$.name: occurs twice"));
  EXPECT_THAT(Refusal(""), HasSubstr("$: is not valid JSON"));
  EXPECT_THAT(Refusal("[]"), HasSubstr("$: is an array, must be an object"));
}

TEST(MachineFile, AFileThatIsNotThere) {
  for (const std::string& path : {std::string("/nowhere/m.json"), testing::TempDir()}) {
    try {
      ReadMachine(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMachine) << path;
      EXPECT_THAT(error.what(), HasSubstr(path.substr(0, 40)));
    }
  }
}

TEST(MachineFile, TheExamplesAreComplete) {
  const std::filesystem::path folder =
      std::filesystem::path(SPILLWAY_SOURCE_DIR) / "examples" / "machines";
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().string());
    const Machine machine = ReadMachine(entry.path());
    ++count;
    const bool has_gpu = entry.path().stem() != "xeon-2-cores";
    EXPECT_EQ(machine.device, has_gpu ? Tier::kGpu : Tier::kCpu);
    if (has_gpu) {
      EXPECT_GT(machine.rates.gpu.memory_bytes_per_s, machine.rates.cpu.memory_bytes_per_s);
    }
    EXPECT_FALSE(machine.sources.empty());
    EXPECT_EQ(machine.flexgen.has_value(), entry.path().stem() == "t4");
    for (const DeviceRates* device : {&machine.rates.gpu, &machine.rates.cpu}) {
      EXPECT_EQ(device->matmul.empty(), device == &machine.rates.gpu && !has_gpu);
      if (device->matmul.empty()) continue;
      for (std::size_t i = 1; i < device->matmul.size(); ++i)
        EXPECT_GT(device->matmul[i].flops_per_s,
                  (machine.disturbed.empty() ? 1.0 : 0.9) * device->matmul[i - 1].flops_per_s);
      // One flop for each byte of weights and row: more rows than one share a read of the weights.
      EXPECT_LE(device->matmul[0].flops_per_s, device->memory_bytes_per_s);
    }
  }
  EXPECT_EQ(count, 6);
}

TEST(MachineFile, ReadFromAFile) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("machine.json", MachineJson(FullMachine())).string();
  EXPECT_EQ(ReadMachine(path).name, FullMachine().name);
}

}  // namespace
}  // namespace spillway
