#include "src/sweep/results_csv.h"

#include <fmt/format.h>

#include <array>
#include <optional>

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

struct Column {
  const char* name;
  const char* pointer;  // into the report
};
constexpr std::array kReportColumns = {
    Column{"generated_tokens_per_s", "/throughput/generated_tokens_per_s"},
    Column{"prefill_tokens_per_s", "/throughput/prefill_tokens_per_s"},
    Column{"decode_tokens_per_s", "/throughput/decode_tokens_per_s"},
    Column{"predicted_tokens_per_s", "/predicted/generated_tokens_per_s"},
    Column{"predicted_bound_by", "/predicted/bound_by"},
    Column{"load_s", "/time_s/load"},
    Column{"prefill_s", "/time_s/prefill"},
    Column{"decode_s", "/time_s/decode"},
    Column{"total_s", "/time_s/total"},
    Column{"num_requests", "/workload/num_requests"},
    Column{"num_errors", "/workload/num_errors"},
    Column{"prompt_tokens", "/workload/prompt_tokens"},
    Column{"generated_tokens", "/workload/generated_tokens"},
    Column{"used_gpu_batch_size", "/block/gpu_batch_size"},
    Column{"used_num_gpu_batches", "/block/num_gpu_batches"},
    Column{"num_blocks", "/block/num_blocks"},
    Column{"kv_slots_per_row", "/kv/slots_per_row"},
    Column{"kv_bytes", "/kv/bytes"},
    Column{"weight_bytes", "/model/weight_bytes"},
    Column{"weights_on_gpu", "/placement/weights/realised/gpu"},
    Column{"weights_on_cpu", "/placement/weights/realised/cpu"},
    Column{"weights_on_disk", "/placement/weights/realised/disk"},
    Column{"kv_on_gpu", "/placement/kv/realised/gpu"},
    Column{"kv_on_cpu", "/placement/kv/realised/cpu"},
    Column{"kv_on_disk", "/placement/kv/realised/disk"},
    Column{"gpu_planned_bytes", "/tiers/gpu/planned_peak_bytes"},
    Column{"cpu_planned_bytes", "/tiers/cpu/planned_peak_bytes"},
    Column{"disk_planned_bytes", "/tiers/disk/planned_peak_bytes"},
    Column{"cpu_peak_bytes", "/tiers/cpu/peak_bytes"},
    Column{"disk_read_bytes", "/links/disk_read/bytes"},
    Column{"disk_write_bytes", "/links/disk_write/bytes"},
    Column{"cpu_to_gpu_bytes", "/links/cpu_to_gpu/bytes"},
    Column{"gpu_to_cpu_bytes", "/links/gpu_to_cpu/bytes"},
    Column{"model_name", "/model/name"},
    Column{"machine_name", "/machine/name"},
    Column{"fingerprint", "/fingerprint"},
};

// Quoted where the field would not be read back as it is.
std::string Field(const std::string& text) {
  const bool spaced = text.starts_with(' ') || text.ends_with(' ');
  if (text.find_first_of(",\"\r\n") == std::string::npos && !spaced) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

class Line {
 public:
  void Add(const std::string& text) {
    if (!first_) text_ += ',';
    first_ = false;
    text_ += Field(text);
  }
  void Add(const std::optional<double>& value) { Add(value ? fmt::format("{}", *value) : ""); }
  void Add(const Json& report, const char* pointer) {
    const Json::json_pointer place(pointer);
    if (!report.contains(place) || report.at(place).is_null()) return Add(std::string());
    const Json& value = report.at(place);
    Add(value.is_string() ? value.get<std::string>() : value.dump());
  }
  std::string End() const { return text_ + '\n'; }

 private:
  std::string text_;
  bool first_ = true;
};

std::string Header(const std::vector<std::string>& flags) {
  Line line;
  for (const char* name : {"point", "status", "verb", "name", "kv"}) line.Add(std::string(name));
  for (const std::string& flag : flags) line.Add(flag);
  for (const Column& column : kReportColumns) line.Add(std::string(column.name));
  for (const char* name :
       {"speedup_over_full_kv", "roof", "decode_flops_per_byte", "decode_flops_per_s",
        "roof_bytes_per_s", "matmul_flops_per_s", "wall_s", "error_code", "error", "file"}) {
    line.Add(std::string(name));
  }
  return line.End();
}

void AddDerived(const RunFigures& figures, Line& line) {
  line.Add(figures.speedup);
  const std::optional<RoofPoint>& roof = figures.roof;
  line.Add(roof ? roof->level : "");
  for (const auto member : {&RoofPoint::flops_per_byte, &RoofPoint::flops_per_s,
                            &RoofPoint::level_bytes_per_s, &RoofPoint::matmul_flops_per_s}) {
    line.Add(roof ? std::optional((*roof).*member) : std::nullopt);
  }
}

}  // namespace

std::string ResultsCsv(const std::vector<PointResult>& results,
                       const std::vector<RunFigures>& figures,
                       const std::vector<std::string>& flags) {
  std::string csv = Header(flags);
  for (std::size_t at = 0; at < results.size(); ++at) {
    const PointResult& result = results[at];
    Line line;
    line.Add(fmt::format("{}", at + 1));
    line.Add(std::string(StateOf(result)));
    line.Add(std::string(VerbName(result.point.verb)));
    line.Add(figures[at].name);
    line.Add(figures[at].kv);
    for (const std::string& flag : flags) {
      const auto setting = result.point.settings.find(flag);
      line.Add(setting == result.point.settings.end() ? "" : setting->second);
    }
    for (const Column& column : kReportColumns) line.Add(result.report, column.pointer);
    AddDerived(figures[at], line);
    line.Add(std::optional(result.wall_s));
    line.Add(result.fault ? result.fault->code : "");
    line.Add(result.fault ? result.fault->message : "");
    line.Add(result.file);
    csv += line.End();
  }
  return csv;
}

}  // namespace spillway
