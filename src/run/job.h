// Job: where a run's requests come from and where its answers go.
// Thread rule: the engine's thread.
#pragma once

#include <optional>
#include <string>

#include "src/sampling/request.h"

namespace spillway {

class Job {
 public:
  virtual ~Job() = default;

  // The next request in input order; nullopt at the end. Bad lines never get here.
  virtual std::optional<Request> Next() = 0;

  // Each request that Next gave comes back through exactly one of these, in any order.
  virtual void Finish(const Request& request, const Completion& completion) = 0;
  virtual void Fail(const Request& request, const std::string& code,
                    const std::string& message) = 0;
};

}  // namespace spillway
