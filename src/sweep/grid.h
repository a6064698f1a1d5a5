// Grid: the runs that a TOML file asks for, in the order in which they run. A key is a flag of
// `bench` or `simulate` without its dashes, a list of values multiplies; a [[group]] is a grid of
// its own that takes what the top says and sets the rest; keys under [bench] or [simulate] count
// for that verb alone. Files that are not found from the working folder are looked for from the
// grid's. Pure function of text and files that flags name; any thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/config/config.h"  // Verb

namespace spillway {

// One run: what a command line would say.
struct SweepPoint {
  Verb verb = Verb::kBench;
  std::map<std::string, std::string> settings;  // flag -> value; words with single spaces between

  // Value of a flag, `otherwise` where the point does not set it.
  std::string Setting(const std::string& flag, const std::string& otherwise) const {
    const auto found = settings.find(flag);
    return found == settings.end() ? otherwise : found->second;
  }

  bool operator==(const SweepPoint&) const = default;
  auto operator<=>(const SweepPoint&) const = default;
};

struct Grid {
  std::vector<std::string> flags;  // that some point sets, in the order of the file
  std::vector<SweepPoint> points;  // the first flag's value changes last
};

// `name` is what messages call the file; `verb`, when given, beats the file's.
// Throws: Error with "name:line:column: ...". kFlag: not TOML, an unknown key, a value of the wrong
// type or that its flag refuses, a list without values, a value or a point twice, no flag at all,
// more than 10,000 points; what a flag that names a file throws.
Grid ParseGrid(const std::string& name, std::string_view text, std::optional<Verb> verb);

// The flags whose value is not the same in all points, in the order of the file.
std::vector<std::string> VariedFlags(const Grid& grid);

// "model=opt-30b gen-len=32" of these flags; those that the point does not set are left out.
std::string PointLabel(const SweepPoint& point, const std::vector<std::string>& flags);

}  // namespace spillway
