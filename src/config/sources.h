// Sources of flags: the command line, the environment (SPILLWAY_<FLAG>) and --config's TOML file;
// the first that states a flag wins. Plain functions; the main thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "src/config/config.h"  // Printout
#include "src/config/flags.h"
#include "src/config/verb_table.h"

namespace spillway {

// Values that were stated, each flag by the source that wins; they are not parsed yet.
struct Stated {
  std::map<std::string, std::vector<std::string>> values;  // of each flag
  std::string word;                  // that belongs to no flag: a path, a grid; empty: none
  std::vector<std::string> words;    // of merge, in its place: paths
  std::set<std::string> by_command;  // flags that the command line states
  std::string config_file;           // empty: none

  bool Has(const std::string& flag) const;
  // "SPILLWAY_SEED", or the file of --config: where a value that is refused comes from; empty: from
  // the command line.
  std::string SourceOf(const std::string& flag) const;
};

// The variable that a flag may be set by: "SPILLWAY_CPU_MEMORY" for "cpu-memory".
std::string EnvironmentName(std::string flag);
// Its value; null: it is not there, or empty, which is none.
const char* EnvironmentValue(const std::string& flag);

// `argv` begins with the verb. Gives a text where --help asks for it.
// Throws: Error kFlag naming the flag and, for an unknown one, the nearest.
std::variant<Stated, Printout> ReadSources(int argc, const char* const* argv, const VerbRow& verb,
                                           const std::vector<Flag>& flags);

}  // namespace spillway
