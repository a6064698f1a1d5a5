#include "src/formats/machine_file.h"

#include <fmt/format.h>

#include <array>
#include <span>

#include "spillway/rated_codes.h"
#include "src/base/json_node.h"
#include "src/base/json_text.h"
#include "src/base/report_kind.h"
#include "src/formats/tier_json.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

// A range that no machine leaves: what lies outside is a slip of units.
struct Range {
  double low = 1e4;  // GB/s by their number, of the fastest memory too, are less
  double high = 1e18;
};
constexpr Range kRate;
constexpr Range kLaunch = {0.0, 1.0};
constexpr Range kShare = {0.01, 1.0};

constexpr int64_t kMaxCapBytes = int64_t{1} << 60;
constexpr int64_t kMaxRows = 1 << 20;
constexpr int64_t kMaxThreads = 1 << 16;

// Each number of a section is named once, for reading and writing.
template <typename Section>
struct Field {
  std::string_view key;
  double Section::*member;
  Range range = kRate;
};

constexpr std::array kDeviceFields = {
    Field<DeviceRates>{"memory_bytes_per_s", &DeviceRates::memory_bytes_per_s},
    Field<DeviceRates>{"prefill_attention_flops_per_s",
                       &DeviceRates::prefill_attention_flops_per_s},
    Field<DeviceRates>{"decode_attention_bytes_per_s", &DeviceRates::decode_attention_bytes_per_s},
    Field<DeviceRates>{"launch_s", &DeviceRates::launch_s, kLaunch},
};

// Keys that a file may leave out.
constexpr std::array kDeviceExtras = {
    Field<DeviceRates>{"first_touch_bytes_per_s", &DeviceRates::first_touch_bytes_per_s},
    Field<DeviceRates>{"norm_elements_per_s", &DeviceRates::norm_elements_per_s},
    Field<DeviceRates>{"logits_per_s", &DeviceRates::logits_per_s},
    Field<DeviceRates>{"narrow_attention_flops_per_s", &DeviceRates::narrow_attention_flops_per_s},
    Field<DeviceRates>{"short_attention_flops_per_s", &DeviceRates::short_attention_flops_per_s},
    Field<DeviceRates>{"evicting_prefill_flops_per_s", &DeviceRates::evicting_prefill_flops_per_s},
    Field<DeviceRates>{"evicting_decode_bytes_per_s", &DeviceRates::evicting_decode_bytes_per_s},
};

constexpr std::array kSharedFields = {
    Field<SharedPace>{"link_frac", &SharedPace::link_frac, kShare},
    Field<SharedPace>{"compute_frac", &SharedPace::compute_frac, kShare},
};

constexpr std::array kFlexGenFields = {
    Field<FlexGenRates>{"cpu_to_gpu_bytes_per_s", &FlexGenRates::cpu_to_gpu_bytes_per_s},
    Field<FlexGenRates>{"gpu_to_cpu_kv_bytes_per_s", &FlexGenRates::gpu_to_cpu_kv_bytes_per_s},
    Field<FlexGenRates>{"gpu_to_cpu_hidden_bytes_per_s",
                        &FlexGenRates::gpu_to_cpu_hidden_bytes_per_s},
    Field<FlexGenRates>{"disk_read_bytes_per_s", &FlexGenRates::disk_read_bytes_per_s},
    Field<FlexGenRates>{"disk_write_bytes_per_s", &FlexGenRates::disk_write_bytes_per_s},
    Field<FlexGenRates>{"prefill_matmul_flops_per_s", &FlexGenRates::prefill_matmul_flops_per_s},
    Field<FlexGenRates>{"decode_matmul_flops_per_s", &FlexGenRates::decode_matmul_flops_per_s},
    Field<FlexGenRates>{"prefill_attention_flops_per_s",
                        &FlexGenRates::prefill_attention_flops_per_s},
    Field<FlexGenRates>{"decode_attention_flops_per_s",
                        &FlexGenRates::decode_attention_flops_per_s},
    Field<FlexGenRates>{"cpu_attention_flops_per_s", &FlexGenRates::cpu_attention_flops_per_s},
    Field<FlexGenRates>{"gpu_memory_bytes_per_s", &FlexGenRates::gpu_memory_bytes_per_s},
    Field<FlexGenRates>{"launch_s", &FlexGenRates::launch_s, kLaunch},
};

template <typename Section, std::size_t num_fields>
std::vector<std::string_view> KeysOf(const std::array<Field<Section>, num_fields>& fields) {
  std::vector<std::string_view> keys;
  for (const Field<Section>& field : fields) keys.push_back(field.key);
  return keys;
}

template <typename Section, std::size_t num_fields>
Section ReadFields(const JsonNode& node, const std::array<Field<Section>, num_fields>& fields) {
  Section section;
  for (const Field<Section>& field : fields)
    section.*field.member = node.Member(field.key).Number(field.range.low, field.range.high);
  return section;
}

template <typename Section, std::size_t num_fields>
Json FieldsJson(const Section& section, const std::array<Field<Section>, num_fields>& fields) {
  Json json = Json::object();
  for (const Field<Section>& field : fields) json[std::string(field.key)] = section.*field.member;
  return json;
}

std::vector<MatmulRate> ReadMatmul(const JsonNode& node) {
  std::vector<MatmulRate> rates;
  for (const JsonNode& item : node.Items()) {
    item.ExpectKeys({"rows", "flops_per_s", "narrow_flops_per_s"});
    const int64_t least = rates.empty() ? 1 : rates.back().rows + 1;
    rates.push_back({item.Member("rows").Integer({least, kMaxRows}),
                     item.Member("flops_per_s").Number(kRate.low, kRate.high), 0.0});
    if (const auto narrow = item.Find("narrow_flops_per_s"))
      rates.back().narrow_flops_per_s = narrow->Number(kRate.low, kRate.high);
  }
  if (rates.empty()) node.Refuse("is an empty list, must hold at least one rate");
  return rates;
}

constexpr std::string_view kMatmul = "matmul";

DeviceRates ReadDeviceRates(const JsonNode& node) {
  std::vector<std::string_view> keys = KeysOf(kDeviceFields);
  for (const auto& extra : kDeviceExtras) keys.push_back(extra.key);
  keys.push_back(kMatmul);
  for (const RatedCodes& codes : kRatedCodes) keys.push_back(codes.key);
  node.ExpectKeys(keys);
  DeviceRates rates = ReadFields(node, kDeviceFields);
  for (const auto& [key, member, range] : kDeviceExtras) {
    if (const auto value = node.Find(key)) rates.*member = value->Number(range.low, range.high);
  }
  rates.matmul = ReadMatmul(node.Member(kMatmul));
  for (const auto& [type, key, name] : kRatedCodes) {
    if (const auto list = node.Find(key)) rates.matmul_codes[type] = ReadMatmul(*list);
  }
  return rates;
}

FlexGenRates ReadFlexGenRates(const JsonNode& node) {
  node.ExpectKeys(KeysOf(kFlexGenFields));
  return ReadFields(node, kFlexGenFields);
}

Tier ReadDevice(const JsonNode& node) {
  const std::string name = node.Text();
  for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
    if (name == TierName(tier)) return tier;
  }
  node.Refuse(fmt::format("is \"{}\", must be gpu or cpu", Printable(name, 40)));
}

PerTier<int64_t> ReadCaps(const JsonNode& node, Tier device) {
  node.ExpectKeys(NamesOf(kAllTiers, TierName));
  PerTier<int64_t> caps;
  for (const Tier tier : kAllTiers) {
    const bool optional = tier == Tier::kGpu && device == Tier::kCpu;
    if (optional && !node.Find(TierName(tier))) continue;
    caps[tier] = node.Member(TierName(tier)).Integer({0, kMaxCapBytes});
  }
  return caps;
}

PerLink<double> ReadLinks(const JsonNode& node, Tier device) {
  node.ExpectKeys(NamesOf(kAllLinks, LinkName));
  PerLink<double> rates;
  for (const Link link : kAllLinks) {
    const bool of_gpu = link == Link::kCpuToGpu || link == Link::kGpuToCpu;
    if (of_gpu && device == Tier::kCpu && !node.Find(LinkName(link))) continue;
    rates[link] = node.Member(LinkName(link)).Number(kRate.low, kRate.high);
  }
  return rates;
}

PerLink<SharedPace> ReadBesideCompute(const JsonNode& node) {
  node.ExpectKeys(NamesOf(kAllLinks, LinkName));
  PerLink<SharedPace> paces;
  for (const Link link : kAllLinks) {
    const auto pace = node.Find(LinkName(link));
    if (!pace) continue;
    pace->ExpectKeys(KeysOf(kSharedFields));
    paces[link] = ReadFields(*pace, kSharedFields);
  }
  return paces;
}

// Reads what says where the rates come from; nothing is computed from it.
void ReadOrigin(const JsonNode& root, Machine& machine) {
  if (const auto isa = root.Find("isa")) machine.isa = isa->Text();
  if (const auto threads = root.Find("threads"))
    machine.num_threads = static_cast<int>(threads->Integer({1, kMaxThreads}));
  if (const auto date = root.Find("date")) machine.date = date->Text();
  if (const auto disturbed = root.Find("disturbed")) machine.disturbed = disturbed->Text();
  if (const auto sources = root.Find("sources")) {
    for (const JsonNode& source : sources->Items()) machine.sources.push_back(source.Text());
  }
}

Machine MachineFrom(const nlohmann::json& document, const JsonOrigin& origin) {
  const JsonNode root(document, origin);
  ExpectKind(root, ReportKind::kMachine, "give a file of profile --output");
  ExpectVersion(root, kMachineVersion);
  root.ExpectKeys({"version", "name", "device", "isa", "threads", "cap_bytes", "link_bytes_per_s",
                   "beside_compute", "disk_both_frac", "gpu", "cpu", "flexgen", "date", "disturbed",
                   "sources"});
  Machine machine;
  machine.name = root.Member("name").Text();
  machine.device = ReadDevice(root.Member("device"));
  ReadOrigin(root, machine);
  machine.cap_bytes = ReadCaps(root.Member("cap_bytes"), machine.device);
  machine.rates.link_bytes_per_s = ReadLinks(root.Member("link_bytes_per_s"), machine.device);
  if (const auto shared = root.Find("beside_compute"))
    machine.rates.beside_compute = ReadBesideCompute(*shared);
  if (const auto both = root.Find("disk_both_frac"))
    machine.rates.disk_both_frac = both->Number(kShare.low, kShare.high);
  if (machine.device == Tier::kGpu || root.Find("gpu"))
    machine.rates.gpu = ReadDeviceRates(root.Member("gpu"));
  machine.rates.cpu = ReadDeviceRates(root.Member("cpu"));
  if (const auto flexgen = root.Find("flexgen")) machine.flexgen = ReadFlexGenRates(*flexgen);
  return machine;
}

Json MatmulJson(const std::vector<MatmulRate>& rates) {
  Json json = Json::array();
  for (const MatmulRate& rate : rates) {
    json.push_back({{"rows", rate.rows}, {"flops_per_s", rate.flops_per_s}});
    if (rate.narrow_flops_per_s > 0.0) json.back()["narrow_flops_per_s"] = rate.narrow_flops_per_s;
  }
  return json;
}

Json DeviceRatesJson(const DeviceRates& rates) {
  Json json = FieldsJson(rates, kDeviceFields);
  for (const auto& [key, member, range] : kDeviceExtras) {
    if (rates.*member > 0.0) json[std::string(key)] = rates.*member;
  }
  json[std::string(kMatmul)] = MatmulJson(rates.matmul);
  for (const auto& [type, key, name] : kRatedCodes) {
    const auto list = rates.matmul_codes.find(type);
    if (list != rates.matmul_codes.end()) json[std::string(key)] = MatmulJson(list->second);
  }
  return json;
}

}  // namespace

Machine ReadMachine(const std::filesystem::path& file) {
  const JsonOrigin origin = {file.string(), ErrorCode::kMachine};
  return MachineFrom(ReadJsonFile(file, origin), origin);
}

std::string MachineJson(const Machine& machine) {
  Json json = Json::object();
  json["version"] = kMachineVersion;
  json["name"] = machine.name;
  json["device"] = TierName(machine.device);
  if (!machine.isa.empty()) json["isa"] = machine.isa;
  json["threads"] = machine.num_threads;
  if (!machine.date.empty()) json["date"] = machine.date;
  if (!machine.disturbed.empty()) json["disturbed"] = machine.disturbed;
  json["cap_bytes"] = PerTierJson(machine.cap_bytes);
  Json rates = Json::object();
  Json paces = Json::object();
  for (const Link link : kAllLinks) {
    const double rate = machine.rates.link_bytes_per_s[link];
    if (rate > 0.0) rates[std::string(LinkName(link))] = rate;
    const SharedPace& pace = machine.rates.beside_compute[link];
    if (pace != SharedPace{}) paces[std::string(LinkName(link))] = FieldsJson(pace, kSharedFields);
  }
  if (!rates.empty()) json["link_bytes_per_s"] = std::move(rates);
  if (!paces.empty()) json["beside_compute"] = std::move(paces);
  if (machine.rates.disk_both_frac != 1.0) json["disk_both_frac"] = machine.rates.disk_both_frac;
  if (!machine.rates.gpu.matmul.empty()) json["gpu"] = DeviceRatesJson(machine.rates.gpu);
  json["cpu"] = DeviceRatesJson(machine.rates.cpu);
  if (machine.flexgen) json["flexgen"] = FieldsJson(*machine.flexgen, kFlexGenFields);
  if (!machine.sources.empty()) json["sources"] = machine.sources;
  return JsonFileText(json);
}

}  // namespace spillway
