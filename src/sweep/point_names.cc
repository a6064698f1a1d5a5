#include "src/sweep/point_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <utility>

namespace spillway {
namespace {

constexpr std::array<std::string_view, 3> kFirst = {"model", "prompt-len", "gen-len"};

// Left out where the others tell the points apart, the first one first.
constexpr std::array<std::string_view, 5> kLeastTelling = {"num-requests", "cpu-memory",
                                                           "gpu-memory", "disk-space", "policy"};

// Tells whether a flag belongs to the KV policy and bits of a run, which have a name of their own.
bool TellsKv(const std::string& flag) { return flag.starts_with("kv-") || flag == "weight-bits"; }

std::string SettingText(const std::string& flag, const std::string& value) {
  const std::filesystem::path path(value);
  if (flag == "model") return path.filename().string();
  if (flag == "policy" || flag == "machine") {
    return flag + " " + (path.extension() == ".json" ? path.stem() : path).string();
  }
  return value == "true" ? flag : flag + " " + value;
}

std::string NameOf(const SweepPoint& point, const std::vector<std::string>& flags) {
  std::string name;
  const auto add = [&name](const std::string& part) {
    name += fmt::format("{}{}", name.empty() ? "" : ", ", part);
  };
  const auto prompt = point.settings.find("prompt-len");
  const auto gen = point.settings.find("gen-len");
  const bool both = prompt != point.settings.end() && gen != point.settings.end();
  bool has_lengths = false;
  for (const std::string& flag : flags) {
    const auto setting = point.settings.find(flag);
    if (setting == point.settings.end() || setting->second == "false") continue;
    const bool is_length = flag == "prompt-len" || flag == "gen-len";
    if (!is_length || !both) {
      add(SettingText(flag, setting->second));
    } else if (!std::exchange(has_lengths, true)) {
      add(fmt::format("{} + {}", prompt->second, gen->second));
    }
  }
  return name;
}

std::vector<std::string> Ordered(const std::vector<std::string>& varied) {
  std::vector<std::string> flags;
  for (const std::string& flag : varied) {
    if (!TellsKv(flag)) flags.push_back(flag);
  }
  std::ranges::stable_sort(flags, {}, [](const std::string& flag) {
    return std::ranges::find(kFirst, flag) - kFirst.begin();
  });
  return flags;
}

std::vector<std::string> NamesOf(const std::vector<SweepPoint>& points,
                                 const std::vector<std::string>& flags) {
  std::vector<std::string> names;
  for (const SweepPoint& point : points) names.push_back(NameOf(point, flags));
  return names;
}

std::size_t NumDistinct(const std::vector<std::string>& names, const std::vector<std::string>& kv) {
  std::set<std::pair<std::string, std::string>> distinct;
  for (std::size_t at = 0; at < names.size(); ++at) distinct.emplace(names[at], kv[at]);
  return distinct.size();
}

}  // namespace

std::vector<std::string> PointNames(const std::vector<SweepPoint>& points,
                                    const std::vector<std::string>& kv,
                                    const std::vector<std::string>& varied) {
  std::vector<std::string> flags = Ordered(varied);
  std::vector<std::string> names = NamesOf(points, flags);
  for (const std::string_view least : kLeastTelling) {
    std::vector<std::string> fewer = flags;
    if (std::erase(fewer, least) == 0) continue;
    std::vector<std::string> shorter = NamesOf(points, fewer);
    if (NumDistinct(shorter, kv) < NumDistinct(names, kv)) continue;
    flags = std::move(fewer);
    names = std::move(shorter);
  }
  return names;
}

}  // namespace spillway
