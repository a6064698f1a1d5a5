// ReportKind: what a JSON file of this program's holds, told by the keys at its top. Plain
// functions; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

namespace spillway {

class JsonNode;

enum class ReportKind { kReport, kTrace, kPolicy, kMachine, kCosts };

// "machine file".
std::string_view NameOf(ReportKind kind);

// Takes policies and machines that somebody wrote by hand too; nullopt: none of ours. Traces, which
// are large, are told by how they begin.
std::optional<ReportKind> KindOf(const nlohmann::json& document);

// Refuses a document of another kind than the wanted one; takes what is of none.
// Throws: Error as JsonNode::Refuse.
void ExpectKind(const JsonNode& root, ReportKind wanted, std::string_view remedy);

}  // namespace spillway
