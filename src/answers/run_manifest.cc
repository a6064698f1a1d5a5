#include "src/answers/run_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "spillway/error.h"
#include "src/base/hash.h"
#include "src/base/json_text.h"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxShownBytes = 60;

bool IsHash(std::string_view text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string TextOf(const RunManifest& manifest, const std::string& key) {
  const auto found = manifest.find(key);
  return found == manifest.end() ? "none" : found->second;
}

// A null for what is no object; long texts would be cut off anyway.
Json ObjectOf(const std::string& text) {
  constexpr std::size_t kMaxBytes = 2000;
  Json json = text.size() > kMaxBytes ? Json() : Json::parse(text, nullptr, false);
  return json.is_object() ? json : Json();
}

// Leaves the members that differ, where both texts are JSON objects.
void DropCommonMembers(std::string& a, std::string& b) {
  Json in_a = ObjectOf(a);
  Json in_b = ObjectOf(b);
  if (in_a.is_null() || in_b.is_null()) return;
  const Json all = in_a;
  for (const auto& [key, value] : all.items()) {
    if (!in_b.contains(key) || in_b[key] != value) continue;
    in_a.erase(key);
    in_b.erase(key);
  }
  a = JsonText(in_a);
  b = JsonText(in_b);
}

// " (fp16, now bf16)", or nothing.
std::string ValuesText(std::string then, std::string now) {
  if (IsHash(then) || IsHash(now)) return {};
  DropCommonMembers(then, now);
  if (std::max(then.size(), now.size()) > kMaxShownBytes) return {};
  return fmt::format(" ({}, now {})", Printable(then), Printable(now));
}

}  // namespace

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

std::string DifferenceText(const RunManifest& then, const RunManifest& now, std::size_t max_bytes) {
  std::vector<std::string> parts = DifferingKeys(then, now);
  std::size_t bytes = fmt::format("{}", fmt::join(parts, ", ")).size();
  for (std::string& part : parts) {
    const std::string values = ValuesText(TextOf(then, part), TextOf(now, part));
    if (bytes + values.size() > max_bytes) continue;
    bytes += values.size();
    part += values;
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string ManifestDigest(const RunManifest& manifest) {
  std::string text;
  for (const auto& [key, value] : manifest)
    text += fmt::format("{} {} {}\n{}\n", key.size(), value.size(), key, value);
  return HashDigits(TextHash(text));
}

}  // namespace spillway
