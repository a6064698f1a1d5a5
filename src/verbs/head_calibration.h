// Budgets per KV head: what each head costs alone, a share of the KV for each by that, and what all
// of them cost together on windows that the first step has not seen. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "spillway/kv_policy.h"  // KvBits, KvLess

namespace spillway {

// Of a set of windows: the log-probability of each token that is scored, [window][token].
using WindowLogprobs = std::vector<std::vector<float>>;
using TellLogprobs = std::function<void(const std::vector<float>& of_window)>;

// Windows by what they are for: one head at a time; all heads together, after a long prompt, most
// of the window, or a short one.
enum class WindowSet { kOneHead, kLongPrompts, kShortPrompts };
inline constexpr WindowSet kJointSets[] = {WindowSet::kLongPrompts, WindowSet::kShortPrompts};

// Shares of a row's tokens that KV heads keep, [layer][kv_head].
using HeadShares = std::vector<std::vector<double>>;

// How much worse the tokens of a set are told, beside the full cache of 16 bits. In nats a token.
struct SetLoss {
  WindowSet set = WindowSet::kLongPrompts;
  int64_t num_tokens = 0;
  double full = 0.0;                 // mean negative log-probability with that cache
  double loss = 0.0;                 // how much higher it is
  std::optional<double> loss_error;  // standard error over the windows, where there are several
  double divergence = 0.0;           // estimate of KL(full || with these shares): no luck lowers it
};

struct JointLoss {
  HeadShares shares;
  std::vector<SetLoss> sets;  // those that there are windows of
  KvBits kv_bits = {};
  double bytes = 0.0;  // as the job counts them

  double mean_share() const;

  // Highest of all losses and divergences: what is held to a bound.
  double worst() const;
};

struct HeadFindings {
  HeadShares costs;  // nats a token that a head loses alone, which keeps kAloneShare, in the mean
  // [layer]: a head's loss is as its share to the power of minus so much.
  std::vector<double> exponents;
  JointLoss joint;               // what was chosen
  std::vector<JointLoss> tried;  // by rising mean share, the chosen one among them
};

// What a head keeps while all others keep everything; and a layer, which shows how the losses of
// its heads fall as they keep more.
inline constexpr double kAloneShare = 0.2;
inline constexpr double kLayerShare = 0.5;

struct HeadCalibrationJob {
  int64_t num_layers = 0;
  int64_t num_kv_heads = 0;
  double max_loss = 0.0;  // in nats a token
  // Bytes that the KV may take with the shares, as `bytes` counts them, falling; empty: the least
  // whose loss is within the bound are searched for.
  std::vector<double> sizes;
  double most_useful_loss = 0.0;  // smaller sizes are not tried once one loses more
  KvBits kv_bits = {};            // that `measure` holds the cache in for the budgets
  std::function<double(const HeadShares& shares)> bytes;
  std::vector<WindowSet> joint_sets;  // those with windows
  // Of one of num_windows windows, with the cache of 16 bits: tells of all tokens kept, then of
  // less in each of the places alone, in their order.
  std::function<void(int64_t window, std::span<const KvLess> places, const TellLogprobs& tell)>
      measure_less;
  int64_t num_windows = 1;
  // Of a set of windows, with these shares, the cache as it is to be held; and the full cache of 16
  // bits.
  std::function<WindowLogprobs(const HeadShares& shares, WindowSet set)> measure;
  std::function<WindowLogprobs(WindowSet set)> reference;
  // Costs that are known from an earlier call, in nats a token: window by window one head after the
  // other, then the layers; and where to these and new ones go.
  std::vector<double> known_costs;
  std::function<void(const std::vector<double>& costs)> note_costs;
};

// What each head and layer costs in each window; what is not known is measured.
std::vector<double> CostsOfHeads(const HeadCalibrationJob& job);

// Shares by the known costs: of the sizes the smallest whose worst loss is at most max_loss, the
// largest where none is; where no sizes are given the smallest ones found, all where there are
// none. Requires: all costs are known; the least shares take no more than the smallest size.
HeadFindings FindHeadBudgets(const HeadCalibrationJob& job);

// Settings of all heads that FindHeadBudgets measures, at most.
int64_t NumJointSettings(const HeadCalibrationJob& job);

// Every head with this share.
HeadShares EvenShares(const HeadCalibrationJob& job, double share);

// Heads, and layers, that are measured alone; and costs of them in all windows.
int64_t NumPlaces(const HeadCalibrationJob& job);
int64_t NumCosts(const HeadCalibrationJob& job);

// Estimate of KL(full || other) in nats a token, and how the windows of a set differ.
SetLoss LossOf(WindowSet set, const WindowLogprobs& full, const WindowLogprobs& other);

// Of settings that were tried the one of fewest bytes whose worst loss is at most max_loss;
// nullptr: there is none.
const JointLoss* LeastWithin(const std::vector<JointLoss>& tried, double max_loss);

// Rows of shares, a line a layer.
std::string HeadTable(const HeadFindings& found);

}  // namespace spillway
