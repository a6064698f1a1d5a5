// CalibratedKv: a way of holding the KV cache whose loss was measured on the user's own model.
// Plain value; any thread.
#pragma once

#include "spillway/kv_policy.h"

namespace spillway {

struct CalibratedKv {
  KvPolicy kv;
  KvBits bits = {};
  double bytes_frac = 1.0;  // of a full cache of 16 bits
  double loss = 0.0;        // in nats a token: the worst of what calibrate measured
};

}  // namespace spillway
