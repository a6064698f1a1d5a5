// Run identity: what decides the bytes of a run's output. Two runs with the same identity write the
// same lines. Thread rule: plain functions; any thread.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <vector>

#include "spillway/policy.h"
#include "src/answers/run_manifest.h"
#include "src/config/config.h"
#include "src/device/device.h"
#include "src/store/open_model.h"

namespace spillway {

// Paths, placement, block shape and threads are left out, for none of them changes a byte; beside a
// GPU it counts whether the CPU attends, which rounds otherwise. Model and tokenizer count by all
// bytes that they hold (content_key.h); reading them is told to `progress`.
// Throws: Error kModelMissing, kSystemLimit, kIo, kCorrupt, kInterrupted.
RunManifest IdentityOf(const Config& config, const OpenedModel& model, const Policy& policy,
                       const Device& device, uint64_t input_hash, const HashProgress& progress);

// The date that chat templates were told in a run of that identity; nullopt: none asked.
std::optional<std::tm> ChatDateOf(const RunManifest& identity);

// The identities that the run would have had on each day of the last year, where a chat template
// tells the date.
std::vector<RunManifest> OnEarlierDays(const RunManifest& identity);

// Whether the CPU attended in a run of that identity; nullopt: it made no difference.
std::optional<bool> AttendedOnCpu(const RunManifest& identity);

}  // namespace spillway
