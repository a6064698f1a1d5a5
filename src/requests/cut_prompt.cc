#include "src/requests/cut_prompt.h"

#include <algorithm>
#include <vector>

#include "src/requests/prompt_keys.h"
#include "src/requests/whole_number.h"

namespace spillway {
namespace {

// First of the tokens that go, where num_cut of num_tokens do.
int64_t FirstCut(CutSide side, int64_t num_tokens, int64_t num_cut) {
  if (side == CutSide::kLeft) return 0;
  if (side == CutSide::kRight) return num_tokens - num_cut;
  return (num_tokens - num_cut + 1) / 2;
}

}  // namespace

std::optional<PromptCut> CutOf(std::optional<CutSide> side) {
  return side ? std::optional(PromptCut{*side, std::nullopt}) : std::nullopt;
}

std::variant<std::optional<PromptCut>, LineFault> CutOf(const nlohmann::json& body,
                                                        std::optional<CutSide> side) {
  std::optional<PromptCut> cut = CutOf(side);
  const nlohmann::json* value = FindSet(body, kCutKey);
  if (value == nullptr) return cut;
  const std::optional<int64_t> most = WholeNumber(*value);
  if (!most || (*most < 1 && *most != -1)) {
    return LineFault{"invalid_value",
                     "\"truncate_prompt_tokens\" must be a whole number of at least 1, or -1"};
  }
  if (!cut) cut = PromptCut{};
  if (*most > 0) cut->most_tokens = *most;
  return cut;
}

void CutPrompt(const PromptCut& cut, int64_t room, TokenId start_token, Request& request) {
  std::vector<TokenId>& prompt = request.prompt;
  const int64_t most = std::max<int64_t>(1, std::min(room, cut.most_tokens.value_or(room)));
  const auto size = static_cast<int64_t>(prompt.size());
  if (size <= most) return;
  const int64_t num_kept = most > 1 && prompt.front() == start_token ? 1 : 0;
  request.num_cut = size - most;
  const auto first =
      prompt.begin() + num_kept + FirstCut(cut.side, size - num_kept, request.num_cut);
  prompt.erase(first, first + request.num_cut);
}

}  // namespace spillway
