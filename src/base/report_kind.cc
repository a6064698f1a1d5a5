#include "src/base/report_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "src/base/json_node.h"

namespace spillway {
namespace {

// A key that only this kind has. A policy has at least one of its own.
struct OwnKey {
  std::string_view key;
  ReportKind kind;
};

constexpr std::array kOwnKeys = {
    OwnKey{"costs", ReportKind::kCosts},
    OwnKey{"traceEvents", ReportKind::kTrace},
    OwnKey{"throughput", ReportKind::kReport},
    OwnKey{"calibration", ReportKind::kReport},
    OwnKey{"sweep", ReportKind::kReport},
    OwnKey{"cap_bytes", ReportKind::kMachine},
    OwnKey{"link_bytes_per_s", ReportKind::kMachine},
    OwnKey{"weight_frac", ReportKind::kPolicy},
    OwnKey{"kv_frac", ReportKind::kPolicy},
    OwnKey{"activation_frac", ReportKind::kPolicy},
    OwnKey{"kv", ReportKind::kPolicy},
    OwnKey{"weight_bits", ReportKind::kPolicy},
    OwnKey{"kv_bits", ReportKind::kPolicy},
    OwnKey{"kv_dtype", ReportKind::kPolicy},
    OwnKey{"gpu_batch_size", ReportKind::kPolicy},
    OwnKey{"num_gpu_batches", ReportKind::kPolicy},
    OwnKey{"cpu_attention", ReportKind::kPolicy},
    OwnKey{"prefill_chunk", ReportKind::kPolicy},
};

}  // namespace

std::string_view NameOf(ReportKind kind) {
  switch (kind) {
    case ReportKind::kReport:
      return "report";
    case ReportKind::kTrace:
      return "trace";
    case ReportKind::kPolicy:
      return "policy";
    case ReportKind::kMachine:
      return "machine file";
    case ReportKind::kCosts:
      return "file of measured losses";
  }
  return "file";
}

std::optional<ReportKind> KindOf(const nlohmann::json& document) {
  if (!document.is_object()) return std::nullopt;
  const auto* found =
      std::ranges::find_if(kOwnKeys, [&](const OwnKey& own) { return document.contains(own.key); });
  return found == kOwnKeys.end() ? std::nullopt : std::optional(found->kind);
}

void ExpectKind(const JsonNode& root, ReportKind wanted, std::string_view remedy) {
  const std::optional<ReportKind> kind = KindOf(root.value());
  if (!kind || *kind == wanted) return;
  root.Refuse(fmt::format("is a {}, not a {}", NameOf(*kind), NameOf(wanted)), remedy);
}

}  // namespace spillway
