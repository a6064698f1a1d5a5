// DecodeWork: the arithmetic of a run's decode passes, and what they read of the device's memory at
// least. With the machine's rates it is what a roofline is drawn from. Pure function; any thread.
#pragma once

#include "spillway/plan.h"
#include "spillway/trace.h"

namespace spillway {

struct DecodeWork {
  double flops = 0.0;         // of products with weights, and of attention over what is kept
  double memory_bytes = 0.0;  // each batch's weights once a pass, and the KV attended to there
};

// Rows count as alike, with the mean lengths of the run.
DecodeWork DecodeWorkOf(const Plan& plan, const Trace& trace);

}  // namespace spillway
