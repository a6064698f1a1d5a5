// Reasoning: the part of an answer that a model thinks aloud in <think>...</think>.
// Plain function; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace spillway {

struct SplitText {
  std::string content;
  std::optional<std::string> reasoning;  // nullopt: the model did not think
};

// Takes the answer apart at its first </think>. `is_open`: the prompt ends with <think>. Reasoning
// that the end of the generation cuts off leaves an empty content. The line ends around the two
// parts go.
SplitText SplitReasoning(std::string_view text, bool is_open);

}  // namespace spillway
