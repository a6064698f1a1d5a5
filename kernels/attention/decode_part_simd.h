// The keys, or the values, of a DecodeTask: where they lie in the cache, how they are read, and
// what is prefetched meanwhile. Private to attention_decode_simd.h: compiled once per instruction
// set.
#pragma once

#include "kernels/attention/attention_block_simd.h"
#include "kernels/attention/attention_isa.h"
#include "kernels/attention/token_runs_simd.h"
#include "kernels/kv/kv_code_simd.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kStep = kDecodeStep;
static_assert(kStep % kLanes == 0 && kStep % kKvCodedBlockSlots == 0 && kStep % kKvBlockSlots == 0);
static_assert(kAttentionKeys % kStep == 0);

// Largest group whose queries read a run of 16 bits in place, each for itself; of codes a query
// does that is alone. Those of a larger one share it: keys widened to fp32, or of codes transposed,
// and values in registers. So do all, of keys, where these are turned as they are read.
constexpr int64_t kInPlaceQueries = 2;

// A DecodeTask's sizes and scratch. A step's runs are visited one after the other: once for all
// queries of a KV head, or once for each of them where they read in place.
struct DecodeFrame {
  const DecodeTask& task;
  const AttentionArgs& args;
  const AttentionRow& row;
  int64_t group;
  int64_t num_heads;  // KV heads
  int64_t num_queries;
  int64_t num_slots;  // that the queries see
  int64_t padded_dim;
  // From the step of a block's last heads to the one that is prefetched then: the same for keys and
  // values, which follow each other, so that none is left out.
  int64_t steps_ahead;
  float* q;             // [query][padded_dim], scaled
  float* sums;          // [query][padded_dim]
  float* run;           // [16][padded_dim]: keys or values that a group shares, widened
  float* block_scores;  // [query][64]
  float* ranges;        // [group][16][min, scale] of a KV block of codes
  float* maxima;        // [query]
  float* totals;        // [query]
  float* rescales;      // [query]: what the sums of the slots so far are multiplied by
  float* numbers;       // [query][KvQueryFloats]: queries, where they meet keys of codes

  explicit DecodeFrame(const DecodeTask& decode_task)
      : task(decode_task),
        args(*task.args),
        row(*task.row),
        group(args.num_heads / args.num_kv_heads),
        num_heads(task.kv_head_end - task.kv_head_begin),
        num_queries(num_heads * group),
        num_slots(row.num_past + 1),
        padded_dim(AttentionPaddedDim(args.head_dim)),
        steps_ahead(StepsAhead()),
        q(task.scratch),
        sums(q + kDecodeQueries * padded_dim),
        run(sums + kDecodeQueries * padded_dim),
        block_scores(run + kStep * padded_dim),
        ranges(block_scores + kDecodeQueries * kAttentionKeys),
        maxima(ranges + 2 * kKvCodedBlockSlots * KvGroups(args.head_dim)),
        totals(maxima + kDecodeQueries),
        rescales(totals + kDecodeQueries),
        numbers(rescales + kDecodeQueries) {}

  int64_t StepsAhead() const {
    const int64_t both = KvTokenBytes(args.head_dim, args.kv_bits.key) +
                         KvTokenBytes(args.head_dim, args.kv_bits.value);
    return MinOf(kMostStepsAhead, MaxOf(1, 2 * kFewAheadBytes / (num_heads * kStep * both)));
  }
};

// The first head's run in a step that comes next, and what is prefetched there.
struct NextRun {
  const std::byte* run = nullptr;  // null: there is none
  int64_t run_bytes = 0;
  int64_t part_bytes = 0;  // of its runs, prefetched in a visit
};

// Those of the step that comes next, and of the one that is prefetched behind a block's last head.
struct NextRuns {
  NextRun near;
  NextRun far;
};

// kBits below 16: the cache holds codes, and kKv is not used. kDim: head_dim where it is
// known at compile time, else 0.
template <typename Form, bool kValues, int64_t kDim>
struct DecodePart {
  static constexpr DType kKv = Form::kDType;
  static constexpr int kBits = Form::template kBits<kValues>;
  static constexpr int64_t kBlockSlots = Form::kBlockSlots;
  static constexpr int64_t kStepBlocks = kStep / kBlockSlots;
  using Runs = TokenRuns<kKv, kBlockSlots, kDim>;

  const DecodeFrame& of;
  bool shares;          // a group of queries shares a run
  int64_t num_visits;   // of a step
  int64_t token_bytes;  // of a token's K or V, min and scale included
  int64_t first_run;    // bytes from a KV block's begin to the task's first run there
  int64_t heads_ahead;  // from the run that is read to the one prefetched in its block
  int64_t part_bytes;   // of the next step's runs, prefetched in a visit

  explicit DecodePart(const DecodeFrame& frame);
  // Divides by a constant, since this runs for each run of keys and of values.
  static_assert(kInPlaceQueries == 2);
  int64_t dim() const { return kDim > 0 ? kDim : of.args.head_dim; }
  int64_t code_bytes() const { return KvCodeBytes(dim(), kBits); }  // of a token's K or V
  int64_t HeadOf(int64_t visit) const { return num_visits == of.num_heads ? visit : visit / 2; }
  // Bytes of one head's keys, or values, in a KV block.
  int64_t run_bytes() const {
    return kBlockSlots * (kDim > 0 ? KvTokenBytes(kDim, kBits) : token_bytes);
  }
  // The run of the visit's KV head in the KV block of `slot`.
  const std::byte* Run(int64_t visit, int64_t slot) const {
    return BlockOf(of.row, slot, kBlockSlots, of.task.block_bytes) + first_run +
           HeadOf(visit) * run_bytes();
  }
  NextRun NextAt(int64_t slot) const { return {Run(0, slot), run_bytes(), part_bytes}; }
  // kStep slots of one KV head, which are read before the next head's.
  struct Step {
    const std::byte* run;
    int64_t slot;
    int64_t ahead_bytes;         // of the run that is prefetched
    int64_t ahead[kStepBlocks];  // of each block: bytes from what is read to what is prefetched
  };
  Step StepAt(int64_t visit, int64_t slot, const NextRuns& next) const;
  void FetchPart(int64_t visit, const NextRun& next) const;
  Step AheadInBlock(const Step& step, int64_t visit, const NextRun& next) const;
  Step AheadInTurn(const Step& step, int64_t visit, const NextRun& next) const;
  CodedBlock<kBits, kDim> Coded(const Step& step) const;
  Runs RunsAt(const Step& step, int64_t at) const;  // of kLanes slots
  void Widen(const Step& step, int64_t count) const;
  LinesAhead RunAhead(const Step& step, int64_t rounds) const;
};

template <typename Form, bool kValues, int64_t kDim>
DecodePart<Form, kValues, kDim>::DecodePart(const DecodeFrame& frame)
    : of(frame),
      shares(of.group > (kBits == 16 ? kInPlaceQueries : 1) || (!kValues && of.args.turns.exist())),
      num_visits(shares ? of.num_heads : of.num_queries),
      token_bytes(KvTokenBytes(of.args.head_dim, kBits)),
      first_run(of.task.kv_head_begin * run_bytes()),
      heads_ahead(MinOf(of.num_heads,
                        MaxOf(1, (shares ? kSharedAheadBytes : kAheadBytes<kBits>) / run_bytes()))),
      part_bytes(MinOf(kNextStepBytes<kBits>, of.num_heads * run_bytes() / 2) / num_visits) {
  constexpr int kKeyBits = Form::template kBits<false>;
  if (kValues)
    first_run += of.args.num_kv_heads * kBlockSlots * KvTokenBytes(of.args.head_dim, kKeyBits);
}

// Prefetches a visit's part of the next step.
template <typename Form, bool kValues, int64_t kDim>
inline __attribute__((always_inline)) void DecodePart<Form, kValues, kDim>::FetchPart(
    int64_t visit, const NextRun& next) const {
  const std::byte* part = next.run + visit * next.part_bytes;
  for (int64_t i = 0; i < kStepBlocks; ++i)
    FetchNear(part + i * of.task.block_bytes, next.part_bytes);
}

template <typename Form, bool kValues, int64_t kDim>
inline __attribute__((always_inline)) typename DecodePart<Form, kValues, kDim>::Step
DecodePart<Form, kValues, kDim>::StepAt(int64_t visit, int64_t slot, const NextRuns& next) const {
  if (next.near.run != nullptr && (!shares || kBits < 16)) FetchPart(visit, next.near);
  const Step step = {Run(visit, slot), slot, run_bytes(), {}};
  return kFetchOther<kBits> && !shares ? AheadInTurn(step, visit, next.near)
                                       : AheadInBlock(step, visit, next.far);
}

// Sets the prefetch distance: heads_ahead runs further on in each block; behind a block's last
// head, in the next step's.
template <typename Form, bool kValues, int64_t kDim>
inline __attribute__((always_inline)) typename DecodePart<Form, kValues, kDim>::Step
DecodePart<Form, kValues, kDim>::AheadInBlock(const Step& step, int64_t visit,
                                              const NextRun& next) const {
  const int64_t beyond = HeadOf(visit) + heads_ahead - of.num_heads;
  Step result = step;
  int64_t ahead = 0;
  if (beyond < 0) {
    ahead = heads_ahead * run_bytes();
  } else if (next.run != nullptr) {
    ahead = BytesBetween(step.run, next.run) + beyond * next.run_bytes;
    result.ahead_bytes = next.run_bytes;
  }
  for (int64_t& of_block : result.ahead) of_block = ahead;
  return result;
}

// Sets the prefetch distance to the run that is read next: the same head's in the step's next
// block, where the row has one; after it the next head's in the first block, or the next step's.
template <typename Form, bool kValues, int64_t kDim>
inline __attribute__((always_inline)) typename DecodePart<Form, kValues, kDim>::Step
DecodePart<Form, kValues, kDim>::AheadInTurn(const Step& step, int64_t visit,
                                             const NextRun& next) const {
  const bool has_next_head = HeadOf(visit) + 1 < of.num_heads;
  const std::byte* then = has_next_head ? step.run + run_bytes() : next.run;
  Step result = step;
  for (int64_t i = 0; i < kStepBlocks; ++i) {
    const bool is_last = i + 1 == kStepBlocks || step.slot + (i + 1) * kBlockSlots >= of.num_slots;
    const int64_t to_then =
        then == nullptr ? 0 : BytesBetween(step.run + i * of.task.block_bytes, then);
    result.ahead[i] = is_last ? to_then : of.task.block_bytes;
  }
  return result;
}

template <typename Form, bool kValues, int64_t kDim>
CodedBlock<DecodePart<Form, kValues, kDim>::kBits, kDim> DecodePart<Form, kValues, kDim>::Coded(
    const Step& step) const {
  const auto* from = reinterpret_cast<const uint16_t*>(step.run + kBlockSlots * code_bytes());
  const int64_t floats = kBlockSlots * 2 * KvGroups(dim());
  for (int64_t i = 0; i < floats; i += kLanes) Simd::Store(of.ranges + i, Simd::LoadHalf(from + i));
  return {step.run,         of.ranges,
          of.args.head_dim, of.task.block_bytes,
          step.ahead[0],    step.ahead_bytes / kBlockSlots};
}

template <typename Form, bool kValues, int64_t kDim>
typename DecodePart<Form, kValues, kDim>::Runs DecodePart<Form, kValues, kDim>::RunsAt(
    const Step& step, int64_t at) const {
  const int64_t block = at / kBlockSlots;
  return {step.run + block * of.task.block_bytes,
          step.slot + at,
          {of.task.block_bytes, of.row.num_slots, of.args.head_dim},
          step.ahead[block]};
}

// Runs that are prefetched while a step's queries are computed, in so many rounds of a quarter of
// its lines.
template <typename Form, bool kValues, int64_t kDim>
LinesAhead DecodePart<Form, kValues, kDim>::RunAhead(const Step& step, int64_t rounds) const {
  if (kBits < 16 || step.ahead[0] == 0) return {};
  const std::byte* first = step.run + step.ahead[0];
  const std::byte* other = kStepBlocks > 1 ? first + of.task.block_bytes : nullptr;
  return {first, first + step.ahead_bytes, other, step.ahead_bytes, rounds < 4};
}

// Widens a step's first slots into `run`.
template <typename Form, bool kValues, int64_t kDim>
void DecodePart<Form, kValues, kDim>::Widen(const Step& step, int64_t count) const {
  if constexpr (kBits < 16) {
    DecodeSlots(Coded(step), count, of.padded_dim, of.run);
    return;
  }
  float* to = of.run;
  for (int64_t slot = 0; slot < count; ++slot, to += of.padded_dim) {
    const int64_t block = slot / kBlockSlots;
    const std::byte* from =
        step.run + block * of.task.block_bytes + slot % kBlockSlots * code_bytes();
    WidenToken<kKv>(from, dim(), of.padded_dim, to);
  }
}

}  // namespace
}  // namespace spillway::kernels
