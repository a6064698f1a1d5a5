// WriterOptions as flags and model say, for files and streams of answers. Pure function.
#pragma once

#include "src/answers/writer.h"  // WriterOptions
#include "src/config/config.h"
#include "src/store/open_model.h"  // OpenedModel

namespace spillway {

// The form of the answers; what a file has beside it is left to the caller.
WriterOptions WriterOptionsOf(const Config& config, const OpenedModel& model);

}  // namespace spillway
