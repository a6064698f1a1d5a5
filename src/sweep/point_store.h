// PointStore: the folder of a sweep, one JSON file for each point that was run: the report of the
// run with the key "sweep" beside its own, or that key alone where there was none.
// Thread rule: one thread; one process at a time, which a lock on the folder sees to.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/descriptor.h"
#include "src/sweep/grid.h"
#include "src/sweep/point_identity.h"

namespace spillway {

// Reason why a point has no report.
struct PointFault {
  std::string code;  // "E-CPU-MEMORY"; empty when the program ended without a word
  std::string message;
  int exit_status = 0;
};

struct PointResult {
  SweepPoint point;
  std::string file;  // in the folder
  double wall_s = 0.0;
  std::optional<PointFault> fault;
  nlohmann::ordered_json report;  // null with a fault
};

// "measured", "simulated"; "refused" before it ran, or "failed".
std::string_view StateOf(const PointResult& result);

class PointStore {
 public:
  // Makes the folder, unless it is there, and reads the points that earlier sweeps finished in it.
  // Throws: Error kPath: cannot be made or written to; kOutputExists: holds something else;
  // kRunInUse: another sweep is at work there; kSystemLimit.
  explicit PointStore(std::filesystem::path folder);

  // The point as it was run to its end: the same verb, settings, program, processor and profiles,
  // and contents of the model and the files that they name. What the file is called, and files that
  // were cut short, do not count; points that could not run are not among them, for what they
  // lacked may be there now.
  std::optional<PointResult> Find(const SweepPoint& point) const;

  // Place where a run is to write its report; nothing is there.
  std::filesystem::path PlaceForReport() const;

  // Keeps a result as a file named by `label`, which is complete or not there. `result.file` is
  // set; what is at PlaceForReport() is removed.
  // Throws: Error kIo, kDiskSpace, kPath.
  PointResult Keep(PointResult result, const std::string& label);

  // The report at PlaceForReport(); nullopt where there is none that is whole.
  std::optional<nlohmann::ordered_json> TakeReport() const;

  // Replaces a file of the folder as a whole. Throws: as Keep.
  void WriteFile(const std::string& name, std::string_view text) const;

 private:
  void ReadFinished();

  std::filesystem::path folder_;
  Descriptor lock_;
  mutable PointIdentities identities_;
  std::map<std::string, PointResult> finished_;  // by identity
};

}  // namespace spillway
