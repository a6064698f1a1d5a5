// RunManifest: everything that decides the bytes of a run's output, as named texts. A run is
// resumed by one with an equal manifest only.
// Thread rule: a plain value.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace spillway {

using RunManifest = std::map<std::string, std::string>;

// Names whose texts differ, or that only one of the two has; ascending.
std::vector<std::string> DifferingKeys(const RunManifest& a, const RunManifest& b);

// The differing names for people: "KV type (fp16, now bf16), model". Both texts are there where
// they are short, are no hashes, and leave the whole within `max_bytes`; of JSON objects the
// members that differ.
std::string DifferenceText(const RunManifest& then, const RunManifest& now, std::size_t max_bytes);

// 16 digits that stand for a manifest.
std::string ManifestDigest(const RunManifest& manifest);

}  // namespace spillway
