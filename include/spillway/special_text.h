// SpecialText: what special tokens written out in a text are. Plain values; any thread.
#pragma once

namespace spillway {

// Whether special tokens written out in a prompt (the literal "</s>") become their ids.
enum class SpecialText { kParse, kPlain };

}  // namespace spillway
