// Trace: what happened, in totals that do not grow with the run. The stage between Schedule and
// Report. Plain values; any thread.
#pragma once

#include <cstdint>

#include "spillway/compute_part.h"
#include "spillway/kv_policy.h"
#include "spillway/tier.h"

namespace spillway {

struct LinkTotals {
  int64_t bytes = 0;
  double busy_s = 0.0;  // in which at least one transfer was under way

  LinkTotals& operator+=(const LinkTotals& other) {
    bytes += other.bytes;
    busy_s += other.busy_s;
    return *this;
  }
  LinkTotals operator+(const LinkTotals& other) const { return LinkTotals(*this) += other; }
  LinkTotals operator-(const LinkTotals& other) const {
    return {bytes - other.bytes, busy_s - other.busy_s};
  }
};

// How long computes waited, by what for.
struct WaitTotals {
  double weights_s = 0.0;
  double kv_s = 0.0;
  double hidden_s = 0.0;
  double stores_s = 0.0;

  double total_s() const { return weights_s + kv_s + hidden_s + stores_s; }
  WaitTotals& operator+=(const WaitTotals& other) {
    weights_s += other.weights_s;
    kv_s += other.kv_s;
    hidden_s += other.hidden_s;
    stores_s += other.stores_s;
    return *this;
  }
  WaitTotals operator-(const WaitTotals& other) const {
    return {weights_s - other.weights_s, kv_s - other.kv_s, hidden_s - other.hidden_s,
            stores_s - other.stores_s};
  }
  WaitTotals operator*(double times) const {
    return {times * weights_s, times * kv_s, times * hidden_s, times * stores_s};
  }
};

struct PhaseTotals {
  double seconds = 0.0;
  double compute_s = 0.0;  // of them
  PartSeconds parts;       // of them; all but the sampling is compute_s
  WaitTotals waits;        // of them
  int64_t passes = 0;
  int64_t prompt_tokens = 0;     // processed
  int64_t generated_tokens = 0;  // sampled; of texts that are scored: predicted
  PerLink<LinkTotals> links;
};

// Reads from disk that failed or gave other bytes than were written, by what helped.
struct DiskMending {
  int64_t num_rereads = 0;     // the same read once again
  int64_t num_repaired = 0;    // weights made from the model again
  int64_t num_recomputed = 0;  // the rows that ran begun again

  DiskMending operator+(const DiskMending& other) const {
    return {num_rereads + other.num_rereads, num_repaired + other.num_repaired,
            num_recomputed + other.num_recomputed};
  }
};

struct Trace {
  double load_s = 0.0;
  // Rate of the weights' file alone, before the first pass; 0: not known.
  double store_bytes_per_s = 0.0;
  PhaseTotals prefill;  // passes in which some row's prompt was processed
  PhaseTotals decode;
  int64_t num_blocks = 0;     // of rows
  int64_t kv_bytes = 0;       // largest block
  int64_t slots_per_row = 0;  // of the row and block with most
  KvKeep largest_keep;        // there
  DiskMending mending;
  // Tokens among those that the phases count, of rows that then began again.
  int64_t lost_tokens = 0;
  int64_t lost_prompt_tokens = 0;
  int64_t lost_decode_tokens = 0;  // fed in decode passes
  // Tokens of prompts, among those of `prefill`, whose K and V were another row's.
  int64_t shared_prompt_tokens = 0;
  PerTier<int64_t> peak_bytes;
};

}  // namespace spillway
