#include "src/sweep/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <tuple>

#include "spillway/error.h"
#include "spillway/model.h"
#include "src/base/suggestion.h"
#include "src/config/flags.h"
#include "src/config/toml_text.h"

namespace spillway {
namespace {

constexpr std::size_t kMaxPoints = 10'000;

// Flags of a run that the sweep states itself, or that make no sense for many runs.
constexpr std::array<std::string_view, 5> kOwnFlags = {"report", "trace", "quiet", "verbose",
                                                       "no-progress"};

// Keys of the top of a file that are no flags.
constexpr std::array<std::string_view, 3> kTopKeys = {"title", "verb", "group"};

// Flags that name what is read.
constexpr std::array<std::string_view, 3> kFileFlags = {"machine", "model", "policy"};

// Names that flags take in place of a file.
bool IsName(const std::string& value) {
  return value.empty() || value == "auto" || BuiltInShape(value).has_value();
}

// A relative path from the working folder, or else from the grid's own folder or the nearest above
// it that has such a file: shipped grids work from anywhere.
std::string FoundFrom(const std::filesystem::path& grid, const std::string& value) {
  if (IsName(value)) return value;
  std::error_code ignored;
  const std::filesystem::path path = value;
  if (path.is_absolute() || std::filesystem::exists(path, ignored)) return value;
  std::filesystem::path folder = std::filesystem::absolute(grid, ignored).parent_path();
  for (; folder.has_relative_path(); folder = folder.parent_path()) {
    if (std::filesystem::exists(folder / path, ignored)) return (folder / path).string();
  }
  return value;
}

// One flag and the values that it takes in turn.
struct Axis {
  std::string flag;
  std::vector<std::string> values;
  toml::source_position at;
};
using Axes = std::map<std::string, Axis>;

class GridReader {
 public:
  explicit GridReader(std::string name) : name_(std::move(name)) {}

  toml::table Parse(std::string_view text) const {
    try {
      return ParseToml(text);
    } catch (const toml::parse_error& error) {
      Refuse(error.source(), error.description());
    }
  }

  Verb VerbOf(const toml::table& top) const {
    const toml::node* node = top.get("verb");
    if (node == nullptr) return Verb::kBench;
    const std::optional<Verb> verb = SweptVerb(node->value<std::string>().value_or(""));
    if (!verb) Refuse(node->source(), "verb: expected \"bench\" or \"simulate\"");
    return *verb;
  }

  // The title is for whatever draws the results; the folder has a copy of the file.
  void CheckTitle(const toml::table& top) const {
    const toml::node* node = top.get("title");
    if (node != nullptr && !node->is_string()) Refuse(node->source(), "title: expected a string");
  }

  // The groups of a file; where it has none, its top is one.
  std::vector<const toml::table*> GroupsOf(const toml::table& top) const {
    const toml::node* node = top.get("group");
    if (node == nullptr) return {nullptr};
    const toml::array* array = node->as_array();
    if (array == nullptr || array->empty() || !array->is_homogeneous<toml::table>()) {
      Refuse(node->source(), "group: write each group as a table under [[group]]");
    }
    std::vector<const toml::table*> groups;
    for (const toml::node& group : *array) {
      groups.push_back(group.as_table());
      for (const auto& [key, value] : *groups.back()) {
        if (IsTopKey(key)) Refuse(key.source(), "belongs to the top of the file, above the groups");
      }
    }
    return groups;
  }

  // The keys of a level go over those of the levels before it, and its verb's own over them.
  void AddLevel(const toml::table& level, Verb verb, Axes& axes) const {
    for (const auto& [key, node] : level) {
      if (!SweptVerb(key.str()) && !IsTopKey(key)) AddAxis(key, node, verb, axes);
    }
    for (const Verb owner : kSweptVerbs) {
      const toml::node* node = level.get(VerbName(owner));
      if (node == nullptr) continue;
      if (!node->is_table()) Refuse(node->source(), "expected a table of this verb's flags");
      Axes unused;  // what another verb would be told is still checked
      for (const auto& [key, value] : *node->as_table()) {
        AddAxis(key, value, owner, owner == verb ? axes : unused);
      }
    }
  }

  [[noreturn]] void Refuse(const toml::source_region& at, std::string_view what,
                           ErrorCode code = ErrorCode::kFlag) const {
    throw Error(
        code, fmt::format("{}:{}:{}: {}", Printable(name_), at.begin.line, at.begin.column, what));
  }

 private:
  static bool IsTopKey(const toml::key& key) {
    return std::ranges::find(kTopKeys, key.str()) != kTopKeys.end();
  }

  void AddAxis(const toml::key& key, const toml::node& node, Verb verb, Axes& axes) const {
    const std::string name(key.str());
    if (std::ranges::find(kOwnFlags, name) != kOwnFlags.end()) {
      Refuse(key.source(), name + ": the sweep sets it for its points; leave it out");
    }
    const std::vector<Flag> flags = FlagsOf(verb);
    const auto flag = std::ranges::find(flags, name, &Flag::name);
    if (flag == flags.end()) RefuseUnknown(key, verb, flags);
    Axis axis{name, {}, key.source().begin};
    Config scratch;
    scratch.verb = verb;
    AddValues(
        node, flag->num_words, [&](const std::string& value) { flag->set(scratch, value); }, axis);
    axes[name] = std::move(axis);
  }

  [[noreturn]] void RefuseUnknown(const toml::key& key, Verb verb,
                                  const std::vector<Flag>& flags) const {
    std::vector<std::string> names = {"group", "title", "verb"};
    for (const Flag& flag : flags) names.push_back(flag.name);
    Refuse(key.source(), fmt::format("{}: {} has no such flag{}", Printable(key.str()),
                                     VerbName(verb), Suggestion(key.str(), names, "")));
  }

  // `check` throws what is wrong with one value.
  template <typename F>
  void AddValues(const toml::node& node, int num_words, F check, Axis& axis) const {
    const toml::array* list = node.as_array();
    const bool one_value =
        list == nullptr || (num_words > 1 && !list->empty() && list->front().is_number());
    if (one_value) return AddValue(node, num_words, check, axis);
    if (list->empty()) Refuse(node.source(), axis.flag + ": a list without values runs nothing");
    for (const toml::node& item : *list) AddValue(item, num_words, check, axis);
  }

  template <typename F>
  void AddValue(const toml::node& node, int num_words, F check, Axis& axis) const {
    std::string value = ValueOf(node, num_words, axis.flag);
    if (std::ranges::find(kFileFlags, axis.flag) != kFileFlags.end())
      value = FoundFrom(name_, value);
    try {
      check(value);
    } catch (const Error& error) {
      Refuse(node.source(), error.what(), error.code());
    }
    if (std::ranges::find(axis.values, value) != axis.values.end()) {
      Refuse(node.source(), fmt::format("{}: {} is given twice", axis.flag, Printable(value)));
    }
    axis.values.push_back(std::move(value));
  }

  // The words of a flag that takes several may be a list.
  std::string ValueOf(const toml::node& node, int num_words, const std::string& flag) const {
    if (std::optional<std::string> value = TomlScalar(node)) return *value;
    const toml::array* list = node.as_array();
    if (list == nullptr || num_words == 1) {
      Refuse(node.source(), flag + ": expected a string, number or boolean, or a list of them");
    }
    std::vector<std::string> words;
    for (const toml::node& item : *list) words.push_back(ValueOf(item, 1, flag));
    return fmt::format("{}", fmt::join(words, " "));
  }

  std::string name_;
};

std::vector<Axis> InOrder(const Axes& axes) {
  std::vector<Axis> ordered;
  for (const auto& [flag, axis] : axes) ordered.push_back(axis);
  std::ranges::sort(ordered, {},
                    [](const Axis& axis) { return std::tuple(axis.at.line, axis.at.column); });
  return ordered;
}

// Every combination of the axes' values, the last axis's value changing with each point.
std::vector<SweepPoint> Multiply(Verb verb, const std::vector<Axis>& axes) {
  std::vector<SweepPoint> points = {{verb, {}}};
  for (const Axis& axis : axes) {
    std::vector<SweepPoint> more;
    for (const SweepPoint& point : points) {
      for (const std::string& value : axis.values) {
        more.push_back(point);
        more.back().settings[axis.flag] = value;
      }
      if (more.size() > kMaxPoints) return more;  // too many, whatever else they are
    }
    points = std::move(more);
  }
  return points;
}

}  // namespace

Grid ParseGrid(const std::string& name, std::string_view text, std::optional<Verb> verb) {
  const GridReader reader(name);
  const toml::table top = reader.Parse(text);
  const Verb swept = verb.value_or(reader.VerbOf(top));
  reader.CheckTitle(top);
  Grid grid;
  const std::vector<const toml::table*> groups = reader.GroupsOf(top);
  std::set<SweepPoint> seen;
  for (const toml::table* group : groups) {
    const toml::source_region& at = (group == nullptr ? top : *group).source();
    Axes axes;
    reader.AddLevel(top, swept, axes);
    if (group != nullptr) reader.AddLevel(*group, swept, axes);
    if (axes.empty()) reader.Refuse(at, "an empty grid: no flag is set");
    const std::vector<Axis> ordered = InOrder(axes);
    for (const Axis& axis : ordered) {
      if (std::ranges::find(grid.flags, axis.flag) == grid.flags.end())
        grid.flags.push_back(axis.flag);
    }
    for (SweepPoint& point : Multiply(swept, ordered)) {
      if (!seen.insert(point).second)
        reader.Refuse(at, "repeats a point of an earlier group: " + PointLabel(point, grid.flags));
      grid.points.push_back(std::move(point));
    }
    if (grid.points.size() > kMaxPoints)
      reader.Refuse(at, fmt::format("more than {} points; split the grid", kMaxPoints));
  }
  return grid;
}

std::vector<std::string> VariedFlags(const Grid& grid) {
  const auto value_of = [](const SweepPoint& point, const std::string& flag) {
    const auto found = point.settings.find(flag);
    return found == point.settings.end() ? std::optional<std::string>() : found->second;
  };
  std::vector<std::string> varied;
  for (const std::string& flag : grid.flags) {
    const std::optional<std::string> first = value_of(grid.points.front(), flag);
    const auto differs = [&](const SweepPoint& point) { return value_of(point, flag) != first; };
    if (std::ranges::any_of(grid.points, differs)) varied.push_back(flag);
  }
  return varied;
}

std::string PointLabel(const SweepPoint& point, const std::vector<std::string>& flags) {
  std::string label;
  for (const std::string& flag : flags) {
    const auto found = point.settings.find(flag);
    if (found == point.settings.end()) continue;
    label += fmt::format("{}{}={}", label.empty() ? "" : " ", flag, found->second);
  }
  return label;
}

}  // namespace spillway
