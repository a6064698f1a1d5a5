// PromptFile: the input of `generate` and `score`, and of `plan` where lengths come from a file:
// scanned for the plan, then read for the run. Thread rule: one thread.
#pragma once

#include <filesystem>
#include <optional>

#include "spillway/workload.h"
#include "src/config/config.h"
#include "src/requests/input_file.h"
#include "src/requests/reader.h"
#include "src/requests/scan.h"
#include "src/run/block.h"  // Beginnings
#include "src/store/open_model.h"
#include "src/verbs/chain.h"  // Setting

namespace spillway {

// Options that lines are read with, as flags and model say.
ReaderOptions ReaderOptionsFor(const Config& config, const OpenedModel& model);

class PromptFile {
 public:
  // Standard input and pipes are copied to --offload-dir, to be read twice.
  // Lifetime: the model outlives it. Throws: Error kInput, kPath, kIo, kDiskSpace.
  PromptFile(const Config& config, const OpenedModel& model);

  // Warns of what is passed over or cut, once for the whole input. Throws: as ScanInput.
  InputScan Scan() const;
  // Throws: Error kInput, kIo.
  RequestReader Read() const;

 private:
  std::filesystem::path path_;
  std::optional<StagedInput> staged_;
  ReaderOptions options_;
  const Tokenizer& tokenizer_;
};

// Whether prompts that begin alike are to be computed from there on (--no-prefix-sharing).
Beginnings BeginningsOf(const Config& config);

Workload WorkloadOf(const InputScan& scan);
// With what all prompts begin with, if flags allow that it is computed once, there are rows that
// save it, and its K and V leave the device's memory room for others.
Workload WorkloadOf(const InputScan& scan, const Setting& setting);

// The value of --prefill, or its default: with the full KV cache all known tokens go in one pass; a
// KV policy that evicts is to act on what is scored.
ScorePrefill PrefillOf(const Config& config);

}  // namespace spillway
