// ConfigShape: the shape that a config.json gives, or how it is refused.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "spillway/error.h"
#include "spillway/model.h"
#include "src/checkpoint/model_config.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace spillway::testing {

inline ModelShape ShapeOf(const nlohmann::json& config) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write("config.json", config.dump());
  return ReadModelShape(folder.path());
}

inline void ExpectRefusal(const nlohmann::json& config, ErrorCode code, const std::string& text) {
  SCOPED_TRACE(config.dump());
  ExpectError(code, text, [&] { ShapeOf(config); });
}

}  // namespace spillway::testing
