#include "src/requests/run_manifest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

namespace spillway {

std::vector<std::string> DifferingKeys(const RunManifest& a, const RunManifest& b) {
  std::vector<std::string> keys;
  for (const auto& [key, text] : a) {
    const auto found = b.find(key);
    if (found == b.end() || found->second != text) keys.push_back(key);
  }
  for (const auto& [key, text] : b) {
    if (!a.contains(key)) keys.push_back(key);
  }
  std::ranges::sort(keys);
  return keys;
}

std::string ManifestDigest(const RunManifest& manifest) {
  std::string text;
  for (const auto& [key, value] : manifest)
    text += fmt::format("{} {} {}\n{}\n", key.size(), value.size(), key, value);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace spillway
