// KvPolicy: which tokens stay in the KV cache of a row, per layer and KV head. A part of Policy.
// H2O (arXiv 2306.14048), made exact: the most recent tokens and the heavy hitters.
// Plain values; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/kv_block.h"

namespace spillway {

enum class KvPolicyKind {
  kFull,        // all tokens
  kH2o,         // heavy hitters and recent tokens
  kWindow,      // first tokens and recent tokens
  kH2oFlexgen,  // h2o as h2o_flexgen does it, for comparison
};

inline constexpr std::array<KvPolicyKind, 4> kAllKvPolicyKinds = {
    KvPolicyKind::kFull, KvPolicyKind::kH2o, KvPolicyKind::kWindow, KvPolicyKind::kH2oFlexgen};

// True: the policy decides by token scores.
constexpr bool UsesScores(KvPolicyKind kind) {
  return kind == KvPolicyKind::kH2o || kind == KvPolicyKind::kH2oFlexgen;
}

constexpr std::string_view KvPolicyName(KvPolicyKind kind) {
  switch (kind) {
    case KvPolicyKind::kFull:
      return "full";
    case KvPolicyKind::kH2o:
      return "h2o";
    case KvPolicyKind::kWindow:
      return "window";
    case KvPolicyKind::kH2oFlexgen:
      break;
  }
  return "h2o-flexgen";
}

// Bits of K and V in words: "8", or "8,4" where they differ.
std::string KvBitsText(KvBits bits);

// A number of tokens, or a share of a row's prompt + max new tokens.
struct TokenAmount {
  double frac = 0.0;  // used where it is not 0
  int64_t tokens = 0;

  int64_t Of(int64_t row_tokens) const;  // rounded up

  bool operator==(const TokenAmount&) const = default;
};

// How much one layer keeps. `kept` counts where `heavy` and `recent` are not set apart: half heavy,
// half recent, the odd one recent; with a window all recent.
struct KvBudget {
  TokenAmount kept;
  std::optional<TokenAmount> heavy;
  std::optional<TokenAmount> recent;

  bool operator==(const KvBudget&) const = default;
};

struct KvPolicy {
  KvPolicyKind kind = KvPolicyKind::kFull;
  KvBudget budget;
  std::vector<KvBudget> layer_budgets;  // [decoder_layer]; empty: `budget` for all
  int64_t num_sinks = 0;                // first tokens that are never evicted; window only
  // [decoder_layer]: tokens that a token sees, itself included; 0: all before it. Empty: all do in
  // all layers. The model's, not the user's: WithWindows sets it.
  std::vector<int64_t> layer_windows = {};
  // [decoder_layer][kv_head], in place of layer_budgets; h2o only.
  std::vector<std::vector<KvBudget>> head_budgets = {};
  // Keys are turned by their places in the cache, in place of their positions, so that a row may
  // grow past the model's positions (kernels/kv/key_turns.h). Of policies that evict.
  bool rolls = false;

  bool evicts() const { return kind != KvPolicyKind::kFull; }
};

// What contradicts itself in a budget of tokens; shares are cut to what a row has.
enum class KvBudgetFault {
  kNone,
  kHeavyInWindow,
  kHeavyTakesAll,
  kRecentIsMore,
  kSinksTakeAll,
};

// Fault of a budget of a policy of that kind and so many sinks. Requires: policy.evicts().
KvBudgetFault FaultOf(const KvBudget& budget, const KvPolicy& policy);

// Numbers of tokens of each kind that a row keeps in one layer.
struct KvKeep {
  int64_t sinks = 0;
  int64_t heavy = 0;
  int64_t recent = 0;
  int64_t window = 0;  // tokens that a token sees, itself included, over slots(); 0: all before it

  constexpr int64_t slots() const { return sinks + heavy + recent; }
  // Tokens in the cache when the row has this many.
  constexpr int64_t NumHeld(int64_t num_tokens) const { return std::min(num_tokens, slots()); }

  bool operator==(const KvKeep&) const = default;
};

// The policy under which a model's rows are kept, up to `longest_row` tokens = prompt + max new
// tokens. `layer_windows` as in KvPolicy. Where a window is shorter than that, its layer keeps no
// token that it will not see again; a policy that keeps all then is one of the most recent tokens.
KvPolicy WithWindows(KvPolicy policy, std::vector<int64_t> layer_windows, int64_t longest_row);

// A KV head of a decoder layer. The head makes a difference with budgets per head only.
struct KvHeadAt {
  int64_t decoder_layer = 0;
  int64_t kv_head = 0;

  constexpr KvHeadAt(int64_t layer, int64_t head = 0) : decoder_layer(layer), kv_head(head) {}
};

// Keep of a row of `row_tokens` = prompt + max new tokens there. recent >= 1; with kFull all of the
// row is recent. In a layer with a shorter window it is less than the window, and has no sinks. A
// row's budget depends on nothing but the row.
KvKeep KeepOf(const KvPolicy& policy, const KvHeadAt& at, int64_t row_tokens);

// Where a row keeps another share of its tokens than its policy says, to learn what that costs: in
// one KV head of a decoder layer, or in all of them.
struct KvLess {
  int64_t decoder_layer = -1;  // -1: nowhere
  int64_t kv_head = -1;        // -1: all
  double kept_frac = 1.0;

  constexpr bool IsAt(const KvHeadAt& at) const {
    return decoder_layer == at.decoder_layer && (kv_head < 0 || kv_head == at.kv_head);
  }
};

// Keep of such a row there.
KvKeep KeepOf(const KvPolicy& policy, const KvHeadAt& at, int64_t row_tokens, const KvLess& less);

// Tokens that such a row keeps where it keeps most, but for windows of the model.
int64_t MostKept(const KvPolicy& policy, int64_t row_tokens);

// The most tokens of a row in a cache of fixed size, whose positions are compared as floats.
inline constexpr int64_t kMostRowTokens = (int64_t{1} << 24) - 1;

struct RowLength {
  int64_t prompt_tokens = 0;
  int64_t max_new_tokens = 0;
};

// Why a row cannot run in a model of so many positions, in words; empty: it can. A rolling cache
// lets it be longer than these, if its prompt is not, nor what it keeps and one token more.
std::string WhyTooLong(const KvPolicy& policy, int64_t max_positions, const RowLength& row);

// A row in a pass.
struct RowProgress {
  int64_t prompt_tokens = 0;
  int64_t num_past = 0;  // tokens whose K and V are stored; 0: the prompt comes now
  int64_t num_new = 0;   // 1 behind the prompt, where tokens are evicted
};

// Slots whose K, V or state a pass changes, for all KV heads together. Scores change for all
// tokens. Without scores each new token takes the slot of the oldest that is no sink, in turn,
// beginning with the first when prompt and policy have filled the cache.
SlotRange ChangedSlots(KvPolicyKind kind, const KvKeep& keep, const RowProgress& row);

}  // namespace spillway
