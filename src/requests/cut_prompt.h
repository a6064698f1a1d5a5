// Prompts that are too long, cut where the user asks for it: --truncate, and
// "truncate_prompt_tokens" of a line. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <variant>

#include "src/requests/line_fault.h"
#include "src/requests/request_lines.h"
#include "src/sampling/request.h"

namespace spillway {

// A cut that a prompt may need.
struct PromptCut {
  CutSide side = CutSide::kLeft;
  std::optional<int64_t> most_tokens;  // that the line states: those that stay at most
};

// Names the number of tokens that stay at most, as vLLM does; -1: as many as fit.
inline constexpr std::string_view kCutKey = "truncate_prompt_tokens";

// The cut that the flag alone asks for.
std::optional<PromptCut> CutOf(std::optional<CutSide> side);

// The cut that the flag (`side`) or a line's key asks for; the key alone cuts the left side.
// nullopt: neither does. Fault: "invalid_value": the key is neither -1 nor a number of at least 1.
std::variant<std::optional<PromptCut>, LineFault> CutOf(const nlohmann::json& body,
                                                        std::optional<CutSide> side);

// Leaves tokens out of the prompt until it has `room` tokens at most, and those that the cut
// states. One stays, and a start token where there is room for two. Request::num_cut says how many
// went.
void CutPrompt(const PromptCut& cut, int64_t room, TokenId start_token, Request& request);

}  // namespace spillway
