// Warning of a tokenizer that is not likely to be the model's. Plain function; the main thread.
#pragma once

#include "src/store/open_model.h"

namespace spillway {

// Warns where the tokenizer has far fewer ids than the model, or none of the model's end tokens is
// a special token of it: rows would then read as nonsense, and end at a word or never. Dummy
// weights go with any.
void WarnOfOtherTokenizer(const OpenedModel& model);

}  // namespace spillway
