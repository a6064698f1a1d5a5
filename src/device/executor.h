// Executor: does the work of one cell of the schedule on one device. Forms: cpu, cuda.
// Thread rule: one thread calls it.
#pragma once

#include <cstdint>
#include <span>

#include "spillway/schedule.h"
#include "src/device/cell_places.h"
#include "src/device/packed_batch.h"

namespace spillway {

class Executor {
 public:
  virtual ~Executor() = default;

  // Takes the batch through layer `at.layer`, whose weights are in place. KV and hidden states are
  // read and left where `places` says. May return before it is done: copies begun afterwards are
  // held until then by their queue (copy_queue.h); batch and places are read before it returns.
  // Throws: Error kInterrupted when a stop was asked for (src/base/stop_signal.h); the batch is
  // then lost. The head computes the logits of `batch.head`; it may be called again for the others
  // that are wanted.
  virtual void Compute(const Cursor& at, const PackedBatch& batch, const CellPlaces& places) = 0;

  // Tells that all batches that have rows have been through the layer of the last Compute: does
  // what that layer puts off until then. Throws: as Compute.
  virtual void EndLayer() {}

  // Logits, after the last layer, of the tokens of batch.head: [batch.head.size(), vocab], fp32, in
  // host memory; waits for them. Lifetime: until the next Compute.
  virtual std::span<float> Logits() = 0;

  // Experts that tokens of the last Compute chose, [their number in a decoder layer]: 1, or 0 for
  // those that none did. Empty where the layer chooses none, or where that is not known yet: an
  // executor that computes behind its caller tells it at the first of the experts' layers. Lifetime:
  // until the next Compute.
  virtual std::span<const uint8_t> ChosenExperts() const { return {}; }
};

}  // namespace spillway
