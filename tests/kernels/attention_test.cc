#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "kernels/kv/kv_code.h"
#include "spillway/round.h"
#include "tests/kernels/kernel_test_util.h"
#include "tests/kernels/mean_table.h"
#include "tests/kernels/turn_table.h"
#include "tests/trace_case.h"

namespace spillway::kernels {
namespace {

ThreadPool& Pool(int num_threads) {
  static std::map<int, std::unique_ptr<ThreadPool>> pools;
  auto& pool = pools[num_threads];
  if (!pool) pool = std::make_unique<ThreadPool>(num_threads);
  return *pool;
}

struct Heads {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;

  int64_t q_width() const { return num_heads * head_dim; }
  int64_t kv_width() const { return num_kv_heads * head_dim; }
};

std::string TextOf(const Heads& heads) {
  return CaseOf("heads", heads.num_heads, "KV heads", heads.num_kv_heads, "head_dim",
                heads.head_dim);
}

// Sequences of given lengths with all their tokens' q, k and v; the cache starts out as NaN.
struct Sequences {
  Heads heads;
  KvStorage storage;
  std::vector<int64_t> lengths;
  std::vector<std::vector<float>> qkv;  // [sequence][token][q | k | v]
  int64_t stride;
  int64_t window = 0;
  float soft_cap = 0.0F;
  std::vector<float> sinks;  // [num_heads]; or none
  KeyTurns turns = {};       // of a rolling cache
  KeyMeans means = {};       // of centred keys

  Sequences(Heads h, KvStorage kv, std::vector<int64_t> l)
      : heads(h), storage(kv), lengths(std::move(l)), stride(h.q_width() + 2 * h.kv_width() + 3) {
    for (size_t i = 0; i < lengths.size(); ++i) {
      qkv.push_back(RandomFloats(lengths[i] * stride, static_cast<uint32_t>(100 + i), 1.5F));
    }
  }
  int64_t block_fill() const { return std::ssize(lengths) % 2 * 96; }
  int64_t slot_bytes() const {
    return KvSlotBytes(heads.num_kv_heads, heads.head_dim, storage.bits) +
           block_fill() / KvBlockSlots(storage.bits);
  }
  // Slots, at least five more than are used.
  int64_t slots(size_t sequence) const {
    return RoundUp(lengths[sequence] + 5, KvBlockSlots(storage.bits));
  }
};

struct Caches {
  std::vector<AlignedBytes> kv;
  std::vector<std::vector<float>> scores;  // [sequence][head][scores_stride], or none
  int64_t scores_stride = 0;
  std::optional<AlignedBytes> prefix;  // the first slots of all sequences
  int64_t prefix_slots = 0;

  explicit Caches(const Sequences& s) {
    for (size_t i = 0; i < s.lengths.size(); ++i) kv.emplace_back(s.slots(i) * s.slot_bytes());
  }
  // Gives the first slots, in which all sequences have the same, a place of their own.
  void TakePrefix(const Sequences& s, int64_t num_slots) {
    const auto bytes = static_cast<std::ptrdiff_t>(num_slots * s.slot_bytes());
    prefix.emplace(bytes);
    prefix_slots = num_slots;
    std::copy_n(kv[0].data(), bytes, prefix->data());
    for (AlignedBytes& cache : kv) {
      AlignedBytes rest(std::ssize(cache.span()) - bytes);
      std::copy_n(cache.data() + bytes, rest.span().size(), rest.data());
      cache = std::move(rest);
    }
  }
  // Zero as far as a sequence goes, then NaN, which nothing may touch.
  void WantScores(const Sequences& s) {
    scores_stride = *std::max_element(s.lengths.begin(), s.lengths.end()) + 3;
    for (const int64_t length : s.lengths) {
      scores.emplace_back(static_cast<size_t>(s.heads.num_heads * scores_stride), kPoison);
      for (int64_t head = 0; head < s.heads.num_heads; ++head)
        std::fill_n(scores.back().begin() + head * scores_stride, length, 0.0F);
    }
  }
};

// New tokens of one call: tokens [past, past + count) of one sequence.
struct Part {
  size_t sequence;
  int64_t past;
  int64_t count;
};

using Outputs =
    std::map<std::pair<size_t, int64_t>, std::vector<float>>;  // by sequence and position

// One call over `parts`, packed in their order; adds what comes out to `outputs`.
template <typename Function>
void RunParts(const Sequences& s, Caches& caches, const std::vector<Part>& parts, Outputs& outputs,
              Function attention) {
  std::vector<float> packed;
  std::vector<AttentionRow> rows;
  int64_t num_tokens = 0;
  for (const Part& part : parts) {
    const auto from = s.qkv[part.sequence].begin() + part.past * s.stride;
    packed.insert(packed.end(), from, from + part.count * s.stride);
    rows.push_back({caches.kv[part.sequence].data(), s.slots(part.sequence), part.past, part.count,
                    num_tokens});
    if (caches.prefix) {
      rows.back().prefix = caches.prefix->data();
      rows.back().prefix_slots = caches.prefix_slots;
    }
    if (!caches.scores.empty()) rows.back().token_scores = caches.scores[part.sequence].data();
    num_tokens += part.count;
  }
  const int64_t out_stride = s.heads.q_width() + 2;
  std::vector<float> out(static_cast<size_t>(num_tokens * out_stride), kPoison);
  AttentionArgs args;
  args.q = packed.data();
  args.k = args.q + s.heads.q_width();
  args.v = args.k + s.heads.kv_width();
  args.qkv_stride = s.stride;
  args.out = out.data();
  args.out_stride = out_stride;
  args.rows = rows;
  args.num_heads = s.heads.num_heads;
  args.num_kv_heads = s.heads.num_kv_heads;
  args.head_dim = s.heads.head_dim;
  args.scale = 1.0F / std::sqrt(static_cast<float>(s.heads.head_dim));
  args.kv_dtype = s.storage.dtype;
  args.kv_bits = s.storage.bits;
  args.kv_block_fill = s.block_fill();
  args.token_scores_stride = caches.scores_stride;
  args.window = s.window;
  args.soft_cap = s.soft_cap;
  args.sinks = s.sinks.empty() ? nullptr : s.sinks.data();
  args.turns = s.turns;
  args.means = s.means;
  attention(args);
  auto at = out.begin();
  for (const Part& part : parts) {
    for (int64_t token = 0; token < part.count; ++token, at += out_stride) {
      outputs[{part.sequence, part.past + token}].assign(at, at + s.heads.q_width());
      EXPECT_TRUE(std::isnan(at[s.heads.q_width()])) << "wrote between rows";
    }
  }
}

Outputs RunAll(const Sequences& s, const std::vector<std::vector<Part>>& calls, Isa isa,
               int num_threads) {
  Caches caches(s);
  Outputs outputs;
  for (const std::vector<Part>& parts : calls) {
    RunParts(s, caches, parts, outputs, [&](const AttentionArgs& args) {
      AlignedBytes workspace(AttentionWorkspaceBytes(1000, args.head_dim, num_threads, isa));
      Attention(args, workspace.span(), Pool(num_threads), isa);
    });
  }
  return outputs;
}

// Every sequence in one prefill call.
std::vector<std::vector<Part>> Whole(const Sequences& s) {
  std::vector<Part> parts;
  for (size_t i = 0; i < s.lengths.size(); ++i) parts.push_back({i, 0, s.lengths[i]});
  return {parts};
}

// All sequences side by side, `chunk` tokens of each at a time.
std::vector<std::vector<Part>> Chunks(const Sequences& s, int64_t chunk) {
  std::vector<std::vector<Part>> calls;
  for (int64_t begin = 0;; begin += chunk) {
    std::vector<Part> parts;
    for (size_t i = 0; i < s.lengths.size(); ++i) {
      if (begin < s.lengths[i]) parts.push_back({i, begin, std::min(chunk, s.lengths[i] - begin)});
    }
    if (parts.empty()) return calls;
    calls.push_back(parts);
  }
}

struct Scored {
  Outputs outputs;
  std::vector<std::vector<float>> scores;
};

// Runs the calls with scores of all sequences.
Scored RunScored(const Sequences& s, const std::vector<std::vector<Part>>& calls, Isa isa,
                 int num_threads) {
  Caches caches(s);
  caches.WantScores(s);
  Scored scored;
  for (const std::vector<Part>& parts : calls) {
    RunParts(s, caches, parts, scored.outputs, [&](const AttentionArgs& args) {
      const int64_t longest = caches.scores_stride;
      AlignedBytes workspace(
          AttentionWorkspaceBytesWithScores(longest, args.head_dim, num_threads, isa));
      Attention(args, workspace.span(), Pool(num_threads), isa);
    });
  }
  scored.scores = caches.scores;
  return scored;
}

class AttentionTest : public testing::TestWithParam<IsaAndKv> {
 protected:
  Isa isa() const { return GetParam().isa; }
  KvStorage kv() const { return GetParam().kv; }
};

INSTANTIATE_TEST_SUITE_P(All, AttentionTest, testing::ValuesIn(AllKvCases()), KvParamName);

TEST_P(AttentionTest, AgreesWithTheOracle) {
  for (const Heads heads : {Heads{4, 4, 64}, Heads{3, 3, 80}, Heads{2, 2, 128}, Heads{8, 2, 64},
                            Heads{5, 1, 24}, Heads{2, 1, 7}, Heads{30, 1, 16}, Heads{1, 1, 200}}) {
    const Sequences s(heads, kv(), {1, 63, 64, 65, 150});
    Caches caches(s);
    Outputs expected;
    for (const auto& parts : Whole(s)) RunParts(s, caches, parts, expected, AttentionRef);
    for (const auto& [at, ours] : RunAll(s, Whole(s), isa(), 2)) {
      const std::vector<float>& reference = expected[at];
      for (size_t i = 0; i < ours.size(); ++i) {
        ASSERT_NEAR(ours[i], reference[i], 4e-6)
            << "head_dim " << heads.head_dim << " sequence " << at.first << " position "
            << at.second << " column " << i;
      }
    }
  }
}

// Keys turned as they are read, in a prompt: as the oracle does, to the bit however it is cut, and
// beside keys that were turned before to the rounding of what the cache holds.
TEST_P(AttentionTest, TurnedKeysAgreeWithTheOracle) {
  for (const Heads heads : {Heads{4, 4, 64}, Heads{3, 3, 80}, Heads{8, 2, 64}, Heads{6, 2, 128},
                            Heads{5, 1, 24}, Heads{34, 1, 16}}) {
    for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kNeighbours}) {
      const TurnTable table(150, heads.head_dim / 4 * 2, pairs);
      SCOPED_TRACE(TextOf(heads) + CaseOf(" halves", pairs == RopePairs::kHalves));
      Sequences s(heads, kv(), {1, 63, 65, 150});
      s.turns = table.turns();
      Caches caches(s);
      Outputs expected;
      for (const auto& parts : Whole(s)) RunParts(s, caches, parts, expected, AttentionRef);
      const Outputs whole = RunAll(s, Whole(s), isa(), 2);
      for (const auto& [at, ours] : whole) {
        for (size_t i = 0; i < ours.size(); ++i)
          ASSERT_NEAR(ours[i], expected[at][i], 1e-5) << "position " << at.second;
      }
      for (const int64_t chunk : {1, 29}) {
        for (const auto& [at, ours] : RunAll(s, Chunks(s, chunk), isa(), 1))
          ASSERT_EQ(Bits(ours), Bits(whole.at(at))) << chunk << " position " << at.second;
      }
    }
  }
}

// Keys that get their means as they are read, in prompts and steps: as the oracle does, to the bit
// however they are cut, with scores and without.
class CentredAttentionTest : public AttentionTest {};
INSTANTIATE_TEST_SUITE_P(All, CentredAttentionTest, testing::ValuesIn(CentredKvCases()),
                         KvParamName);

TEST_P(CentredAttentionTest, AgreesWithTheOracle) {
  for (const Heads heads :
       {Heads{4, 4, 64}, Heads{8, 2, 64}, Heads{6, 2, 128}, Heads{5, 1, 8}, Heads{34, 1, 16}}) {
    SCOPED_TRACE(TextOf(heads));
    const MeanTable table(150, heads.num_kv_heads, heads.head_dim);
    Sequences s(heads, kv(), {1, 63, 65, 150});
    s.means = table.means();
    Caches caches(s);
    caches.WantScores(s);
    Outputs expected;
    for (const auto& parts : Whole(s)) RunParts(s, caches, parts, expected, AttentionRef);
    const Outputs whole = RunAll(s, Whole(s), isa(), 2);
    for (const auto& [at, ours] : whole) {
      for (size_t i = 0; i < ours.size(); ++i)
        ASSERT_NEAR(ours[i], expected[at][i], 2e-5) << "position " << at.second;
    }
    for (const int64_t chunk : {1, 29}) {
      for (const auto& [at, ours] : RunAll(s, Chunks(s, chunk), isa(), 1))
        ASSERT_EQ(Bits(ours), Bits(whole.at(at))) << chunk << " position " << at.second;
    }
    const Scored scored = RunScored(s, Whole(s), isa(), 2);
    for (size_t i = 0; i < s.lengths.size(); ++i) {
      for (size_t at = 0; at < scored.scores[i].size(); ++at) {
        if (std::isnan(caches.scores[i][at])) continue;
        ASSERT_NEAR(scored.scores[i][at], caches.scores[i][at], 1e-4) << i << " " << at;
      }
    }
  }
}

// Outputs behind the first `prefix` tokens, which are computed first, and then lie elsewhere.
template <typename Function>
Outputs RunBehindPrefix(const Sequences& s, int64_t prefix, int64_t chunk, Function attention) {
  Caches caches(s);
  Outputs outputs;
  std::vector<Part> parts;
  for (size_t i = 0; i < s.lengths.size(); ++i) parts.push_back({i, 0, prefix});
  RunParts(s, caches, parts, outputs, attention);
  caches.TakePrefix(s, prefix);
  outputs.clear();
  for (int64_t begin = prefix;; begin += chunk) {
    parts.clear();
    for (size_t i = 0; i < s.lengths.size(); ++i) {
      if (begin < s.lengths[i]) parts.push_back({i, begin, std::min(chunk, s.lengths[i] - begin)});
    }
    if (parts.empty()) return outputs;
    RunParts(s, caches, parts, outputs, attention);
  }
}

TEST_P(AttentionTest, APrefixInAPlaceOfItsOwnChangesNoBit) {
  for (const Heads heads :
       {Heads{4, 4, 64}, Heads{3, 3, 20}, Heads{14, 2, 64}, Heads{2, 1, 128}, Heads{34, 1, 8}}) {
    for (const int64_t prefix : {64, 192}) {
      SCOPED_TRACE(TextOf(heads) + CaseOf(" prefix", prefix));
      Sequences s(heads, kv(), {prefix + 1, prefix + 64, prefix + 90});
      for (std::vector<float>& qkv : s.qkv)
        std::copy_n(s.qkv[0].begin(), prefix * s.stride, qkv.begin());
      const Outputs whole = RunAll(s, Whole(s), isa(), 2);
      for (const int64_t chunk : {1, 33, 200}) {
        const auto attend = [&](const AttentionArgs& args) {
          AlignedBytes workspace(AttentionWorkspaceBytes(1000, args.head_dim, 2, isa()));
          Attention(args, workspace.span(), Pool(2), isa());
        };
        const Outputs ours = RunBehindPrefix(s, prefix, chunk, attend);
        ASSERT_EQ(ours.size(), 1U + 64U + 90U);
        for (const auto& [at, out] : ours)
          ASSERT_EQ(Bits(out), Bits(whole.at(at))) << chunk << " position " << at.second;
      }
      Caches caches(s);
      Outputs oracle;
      for (const auto& parts : Whole(s)) RunParts(s, caches, parts, oracle, AttentionRef);
      for (const auto& [at, out] : RunBehindPrefix(s, prefix, 200, AttentionRef))
        ASSERT_EQ(Bits(out), Bits(oracle.at(at))) << "oracle, position " << at.second;
    }
  }
}

constexpr int64_t kWindows[] = {2, 5, 23, 64, 70, 150};
constexpr float kSoftCap = 2.0F;  // below many scores

Sequences Windowed(Heads heads, KvStorage kv, int64_t window, float soft_cap = 0.0F) {
  Sequences s(heads, kv, {1, 63, 64, 65, 199});
  s.window = window;
  s.soft_cap = soft_cap;
  return s;
}

// Outputs and token scores of prompts, beside the oracle's.
void CompareScored(const Sequences& s, Isa isa) {
  Caches caches(s);
  caches.WantScores(s);
  Outputs expected;
  for (const auto& parts : Whole(s)) RunParts(s, caches, parts, expected, AttentionRef);
  const Scored ours = RunScored(s, Whole(s), isa, 2);
  for (const auto& [at, out] : ours.outputs) {
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_NEAR(out[i], expected.at(at)[i], 6e-6) << at.first << " position " << at.second;
  }
  for (size_t i = 0; i < s.lengths.size(); ++i) {
    for (size_t at = 0; at < ours.scores[i].size(); ++at) {
      if (std::isnan(caches.scores[i][at])) continue;
      ASSERT_NEAR(ours.scores[i][at], caches.scores[i][at], 1e-5 * (1 + ours.scores[i][at]))
          << "sequence " << i << " score " << at;
    }
  }
}

TEST_P(AttentionTest, WindowsAndSoftCapsAgreeWithTheOracle) {
  for (const Heads heads :
       {Heads{4, 4, 64}, Heads{8, 2, 64}, Heads{5, 1, 24}, Heads{30, 1, 16}, Heads{2, 1, 256}}) {
    for (const int64_t window : kWindows) {
      SCOPED_TRACE(TextOf(heads) + CaseOf(" window", window));
      ASSERT_NO_FATAL_FAILURE(CompareScored(Windowed(heads, kv(), window, kSoftCap), isa()));
    }
  }
}

// Sinks below and above the scores; a decode task gives the bits of the prompt's.
TEST_P(AttentionTest, SinksAgreeWithTheOracle) {
  for (const Heads heads :
       {Heads{4, 4, 64}, Heads{16, 2, 64}, Heads{5, 1, 24}, Heads{30, 1, 16}, Heads{34, 1, 8}}) {
    for (const int64_t window : {0, 23, 150}) {
      SCOPED_TRACE(TextOf(heads) + CaseOf(" window", window));
      Sequences s = Windowed(heads, kv(), window);
      s.sinks = RandomFloats(heads.num_heads, 9, 4.0F);
      ASSERT_NO_FATAL_FAILURE(CompareScored(s, isa()));
      const Outputs whole = RunAll(s, Whole(s), isa(), 1);
      for (const auto& [at, out] : RunAll(s, Chunks(s, 1), isa(), 2))
        ASSERT_EQ(Bits(out), Bits(whole.at(at))) << "position " << at.second;
    }
  }
}

TEST_P(AttentionTest, ASinkOfMinusInfinityChangesNoBit) {
  Sequences s({8, 2, 64}, kv(), {1, 65, 130});
  for (const int64_t chunk : {1, 33}) {
    s.sinks.clear();
    const Scored expected = RunScored(s, Chunks(s, chunk), isa(), 2);
    s.sinks.assign(8, -std::numeric_limits<float>::infinity());
    const Scored ours = RunScored(s, Chunks(s, chunk), isa(), 2);
    for (const auto& [at, out] : ours.outputs)
      ASSERT_EQ(Bits(out), Bits(expected.outputs.at(at))) << "position " << at.second;
    for (size_t i = 0; i < s.lengths.size(); ++i)
      EXPECT_EQ(Bits(ours.scores[i]), Bits(expected.scores[i]));
  }
}

TEST_P(AttentionTest, ASinkThatIsNoNumberReachesItsHeadAlone) {
  Sequences s({4, 2, 24}, kv(), {70});
  s.sinks = {0.0F, kPoison, 0.0F, 1.0F};
  for (const int64_t chunk : {1, 70}) {
    for (const auto& [at, out] : RunAll(s, Chunks(s, chunk), isa(), 1)) {
      for (size_t i = 0; i < out.size(); ++i)
        ASSERT_EQ(std::isnan(out[i]), i / 24 == 1) << "position " << at.second;
    }
  }
}

TEST_P(AttentionTest, BitsOfAWindowDoNotDependOnChunksOrScores) {
  for (const Heads heads : {Heads{4, 4, 64}, Heads{4, 2, 64}, Heads{6, 2, 80}, Heads{30, 1, 16},
                            Heads{3, 3, 20}, Heads{14, 2, 64}, Heads{8, 1, 128}, Heads{34, 1, 8}}) {
    for (const int64_t window : kWindows) {
      SCOPED_TRACE(TextOf(heads) + CaseOf(" window", window));
      const Sequences s = Windowed(heads, kv(), window);
      const Outputs whole = RunAll(s, Whole(s), isa(), 1);
      const Scored scored = RunScored(s, Whole(s), isa(), 2);
      for (const int64_t chunk : {1, 7, 64}) {
        const Scored chunked = RunScored(s, Chunks(s, chunk), isa(), 2);
        const Outputs plain = RunAll(s, Chunks(s, chunk), isa(), 2);
        for (const auto& [at, out] : whole) {
          ASSERT_EQ(Bits(plain.at(at)), Bits(out)) << chunk << " position " << at.second;
          ASSERT_EQ(Bits(chunked.outputs.at(at)), Bits(out)) << chunk << " at " << at.second;
        }
        for (size_t i = 0; i < s.lengths.size(); ++i)
          ASSERT_EQ(Bits(chunked.scores[i]), Bits(scored.scores[i])) << "sequence " << i;
      }
    }
  }
}

// A window as long as the row changes no bit; a token that has left it changes none either.
TEST_P(AttentionTest, AWindowHidesWhatIsBehindIt) {
  Sequences s({6, 2, 64}, kv(), {130});
  const Outputs all = RunAll(s, Whole(s), isa(), 1);
  s.window = 130;
  for (const auto& [at, out] : RunAll(s, Whole(s), isa(), 1))
    ASSERT_EQ(Bits(out), Bits(all.at(at)));
  s.window = 20;
  const Outputs good = RunAll(s, Whole(s), isa(), 1);
  for (int64_t i = 0; i < s.stride; ++i) s.qkv[0][static_cast<size_t>(70 * s.stride + i)] = kPoison;
  for (const auto& [at, out] : RunAll(s, Whole(s), isa(), 1)) {
    const bool sees = at.second >= 70 && at.second < 90;
    EXPECT_EQ(std::isnan(out[0]), sees) << at.second;
    if (!sees) {
      EXPECT_EQ(Bits(out), Bits(good.at(at))) << at.second;
    }
  }
}

// Elements that are k / 16 with k in [0, steps], of which each group has the least and the largest:
// the codes are then the k, and what is read is what was given.
void MakeLossless(Sequences& s, KvBits bits) {
  const int64_t dim = s.heads.head_dim;
  for (std::vector<float>& qkv : s.qkv) {
    for (size_t i = 0; i < qkv.size(); ++i) {
      const int64_t column = static_cast<int64_t>(i) % s.stride - s.heads.q_width();
      if (column < 0) continue;  // q
      const int of_part = column < s.heads.num_kv_heads * dim ? bits.key : bits.value;
      const int steps = KvSteps(std::min(of_part, 8));
      const auto code = static_cast<int>(std::abs(qkv[i]) * 1000) % (steps + 1);
      const int64_t in_group = column % dim % kKvGroup;
      const int chosen = in_group == 0 ? 0 : in_group == 1 ? steps : code;
      qkv[i] = static_cast<float>(chosen) / 16.0F - 0.5F;
    }
  }
}

// Values of codes are read as the codes' numbers are: in prefill, in decode, with scores. (Keys of
// codes meet rounded queries.)
TEST_P(AttentionTest, ValuesOfCodesGiveTheBitsOfTheirNumbers) {
  if (kv().bits.value == 16) return;
  for (const Heads heads : {Heads{4, 4, 64}, Heads{3, 3, 80}, Heads{2, 2, 128}, Heads{8, 2, 64},
                            Heads{5, 1, 24}, Heads{2, 1, 7}, Heads{30, 1, 16}, Heads{1, 1, 200}}) {
    const KvBits bits = {16, kv().bits.value};
    Sequences coded(heads, KvStorage{DType::kF16, bits}, {1, 63, 64, 65, 150});
    MakeLossless(coded, bits);
    Sequences plain = coded;
    plain.storage = {};
    for (const int64_t chunk : {1, 3, 150}) {
      const Scored ours = RunScored(coded, Chunks(coded, chunk), isa(), 2);
      const Scored expected = RunScored(plain, Chunks(plain, chunk), isa(), 2);
      for (const auto& [at, out] : ours.outputs)
        ASSERT_EQ(Bits(out), Bits(expected.outputs.at(at)))
            << "head_dim " << heads.head_dim << " chunk " << chunk << " position " << at.second;
      for (size_t i = 0; i < ours.scores.size(); ++i)
        ASSERT_EQ(Bits(ours.scores[i]), Bits(expected.scores[i])) << "sequence " << i;
    }
    const Outputs expected = RunAll(plain, Chunks(plain, 1), isa(), 2);  // decode tasks
    for (const auto& [at, out] : RunAll(coded, Chunks(coded, 1), isa(), 2))
      ASSERT_EQ(Bits(out), Bits(expected.at(at)))
          << "head_dim " << heads.head_dim << " decode, position " << at.second;
  }
}

TEST_P(AttentionTest, BitsDoNotDependOnChunksNeighboursOrThreads) {
  // {40, 40}: more heads than one decode task takes; {2, 1}: one key for two queries,
  // {14, 2}: for seven; {34, 1}: more queries than one decode task takes; 120: registers by fours,
  // pairs, one and a part.
  for (const Heads heads :
       {Heads{4, 4, 64}, Heads{4, 2, 64}, Heads{3, 3, 80}, Heads{6, 2, 80}, Heads{4, 2, 80},
        Heads{3, 3, 128}, Heads{2, 1, 128}, Heads{3, 3, 120}, Heads{3, 3, 20}, Heads{2, 1, 7},
        Heads{40, 40, 16}, Heads{12, 6, 72}, Heads{2, 2, 96}, Heads{14, 2, 64}, Heads{8, 1, 128},
        Heads{6, 2, 20}, Heads{34, 1, 8}}) {
    SCOPED_TRACE(TextOf(heads));
    const Sequences s(heads, kv(), {1, 100, 130, 64, 199});
    const Outputs whole = RunAll(s, Whole(s), isa(), 1);
    for (const int64_t chunk : {1, 7, 64, 100}) {
      for (const int num_threads : {2, 4}) {
        const Outputs chunked = RunAll(s, Chunks(s, chunk), isa(), num_threads);
        ASSERT_EQ(chunked.size(), whole.size()) << "chunk " << chunk << " threads " << num_threads;
        for (const auto& [at, out] : chunked) {
          ASSERT_EQ(Bits(out), Bits(whole.at(at)))
              << "chunk " << chunk << " threads " << num_threads << " sequence " << at.first
              << " position " << at.second;
        }
      }
    }
    // Each sequence alone, then all but the first in reverse order.
    for (size_t i = 0; i < s.lengths.size(); ++i) {
      for (const auto& [at, out] : RunAll(s, {{{i, 0, s.lengths[i]}}}, isa(), 2))
        ASSERT_EQ(Bits(out), Bits(whole.at(at)))
            << "sequence " << i << " alone, position " << at.second;
    }
    for (const auto& [at, out] : RunAll(s, {{{4, 0, 199}, {3, 0, 64}, {1, 0, 100}}}, isa(), 2)) {
      ASSERT_EQ(Bits(out), Bits(whole.at(at)))
          << "in reverse order, sequence " << at.first << " position " << at.second;
    }
  }
}

TEST_P(AttentionTest, StoresRoundedKeysAndValuesAndTouchesNoOtherSlot) {
  const Sequences s({4, 2, 20}, kv(), {70, 3});
  Caches ours(s);
  Caches reference(s);
  Outputs outputs;
  const std::vector<Part> parts = {{0, 0, 70}, {1, 0, 3}};
  RunParts(s, reference, parts, outputs, AttentionRef);
  RunParts(s, ours, parts, outputs, [&](const AttentionArgs& args) {
    AlignedBytes workspace(AttentionWorkspaceBytes(1000, args.head_dim, 2, isa()));
    Attention(args, workspace.span(), Pool(2), isa());
  });
  for (size_t i = 0; i < 2; ++i) {  // the slots behind each head's tokens are still 0xFF in both
    EXPECT_TRUE(std::ranges::equal(ours.kv[i].span(), reference.kv[i].span())) << i;
  }
}

TEST_P(AttentionTest, ABadTokenDoesNotReachEarlierOnes) {
  Sequences s({2, 2, 64}, kv(), {90});
  const Outputs good = RunAll(s, Whole(s), isa(), 1);
  for (int64_t i = 0; i < s.stride; ++i) s.qkv[0][static_cast<size_t>(70 * s.stride + i)] = kPoison;
  const Outputs bad = RunAll(s, Whole(s), isa(), 1);
  for (const auto& [at, out] : bad) {
    if (at.second < 70) {
      EXPECT_EQ(Bits(out), Bits(good.at(at))) << at.second;
    } else {
      EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float v) { return std::isnan(v); }))
          << at.second;
    }
  }
}

// A watch takes a run for stalled while the pulse stays.
TEST_P(AttentionTest, ThePulseChangesWithinATask) {
  const Sequences s({1, 1, 16}, kv(), {80});
  ThreadPool pool(1);
  const auto pulse_after_a_call = [&] {
    Caches caches(s);
    Outputs outputs;
    RunParts(s, caches, {{0, 0, 80}}, outputs, [&](const AttentionArgs& args) {
      AlignedBytes workspace(AttentionWorkspaceBytes(100, args.head_dim, 1, isa()));
      Attention(args, workspace.span(), pool, isa());
    });
    return pool.Pulse();
  };
  const uint64_t before = pulse_after_a_call();
  EXPECT_NE(pulse_after_a_call(), before);  // one task each, with four blocks of queries
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  Sequences s({2, 2, 64}, kv(), {80});
  for (float& value : s.qkv[0]) value *= 60.0F;
  const Outputs outputs = RunAll(s, Whole(s), isa(), 1);
  for (const auto& [at, out] : outputs) {
    EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float v) { return std::isfinite(v); }))
        << at.second;
  }
}

TEST_P(AttentionTest, TokenScoresAreTheSumsOfTheWeights) {
  for (const Heads heads : {Heads{4, 4, 64}, Heads{3, 3, 80}, Heads{2, 2, 128}, Heads{8, 2, 64},
                            Heads{5, 1, 24}, Heads{2, 1, 7}, Heads{30, 1, 16}, Heads{1, 1, 200}}) {
    SCOPED_TRACE(TextOf(heads));
    const Sequences s(heads, kv(), {1, 63, 64, 65, 200});
    Caches reference(s);
    reference.WantScores(s);
    Outputs outputs;
    for (const auto& parts : Whole(s)) RunParts(s, reference, parts, outputs, AttentionRef);
    const Scored ours = RunScored(s, Whole(s), isa(), 2);
    for (size_t sequence = 0; sequence < s.lengths.size(); ++sequence) {
      for (int64_t head = 0; head < heads.num_heads; ++head) {
        double total = 0;  // each query gives away 1
        for (int64_t token = 0; token < reference.scores_stride; ++token) {
          const auto at = static_cast<size_t>(head * reference.scores_stride + token);
          const float score = ours.scores[sequence][at];
          ASSERT_EQ(std::isnan(score), token >= s.lengths[sequence]) << token;
          if (std::isnan(score)) continue;
          total += score;
          ASSERT_NEAR(score, reference.scores[sequence][at], 1e-5 * (1 + score))
              << "head_dim " << heads.head_dim << " sequence " << sequence << " head " << head
              << " token " << token;
        }
        const auto length = static_cast<double>(s.lengths[sequence]);
        ASSERT_NEAR(total, length, 1e-5 * length) << "sequence " << sequence << " head " << head;
      }
    }
  }
}

TEST_P(AttentionTest, TokenScoresChangeNoOutputAndTheirBitsDependOnTheRowOnly) {
  for (const Heads heads : {Heads{4, 4, 64}, Heads{6, 2, 80}, Heads{30, 1, 16}, Heads{3, 3, 20}}) {
    SCOPED_TRACE(TextOf(heads));
    const Sequences s(heads, kv(), {1, 100, 130, 64, 199});
    const Outputs plain = RunAll(s, Whole(s), isa(), 1);
    const Scored whole = RunScored(s, Whole(s), isa(), 1);
    std::vector<Scored> others;
    for (const int64_t chunk : {1, 7, 64, 100})
      others.push_back(RunScored(s, Chunks(s, chunk), isa(), 4));
    std::vector<std::vector<Part>> alone;
    for (size_t i = 0; i < s.lengths.size(); ++i) alone.push_back({{i, 0, s.lengths[i]}});
    others.push_back(RunScored(s, alone, isa(), 2));
    others.push_back(whole);
    for (size_t run = 0; run < others.size(); ++run) {  // by chunks, each alone, whole
      SCOPED_TRACE(CaseOf("run", run));
      const Scored& other = others[run];
      for (const auto& [at, out] : other.outputs)
        ASSERT_EQ(Bits(out), Bits(plain.at(at)))
            << "sequence " << at.first << " position " << at.second;
      for (size_t i = 0; i < s.lengths.size(); ++i)
        ASSERT_EQ(Bits(other.scores[i]), Bits(whole.scores[i])) << "sequence " << i;
    }
  }
}

// One query over keys that are all the same, in several blocks: the same weight, to the bit.
TEST_P(AttentionTest, EqualKeysGetEqualScores) {
  Sequences s({2, 1, 64}, kv(), {200});
  const int64_t k = s.heads.q_width();
  for (int64_t token = 1; token < 200; ++token)
    std::copy_n(s.qkv[0].begin() + k, 64, s.qkv[0].begin() + token * s.stride + k);
  for (float& q : std::span(s.qkv[0]).subspan(static_cast<size_t>(199 * s.stride), 128)) q *= 3;
  Caches caches(s);
  Outputs outputs;
  auto attention = [&](const AttentionArgs& args) {
    AlignedBytes workspace(AttentionWorkspaceBytesWithScores(200, args.head_dim, 1, isa()));
    Attention(args, workspace.span(), Pool(1), isa());
  };
  RunParts(s, caches, {{0, 0, 199}}, outputs, attention);
  caches.WantScores(s);
  RunParts(s, caches, {{0, 199, 1}}, outputs, attention);
  for (int64_t head = 0; head < 2; ++head) {
    const float* scores = caches.scores[0].data() + head * caches.scores_stride;
    EXPECT_NEAR(scores[0], 1.0 / 200, 1e-8) << "head " << head;
    for (int64_t token = 0; token < 200; ++token) EXPECT_EQ(scores[token], scores[0]) << token;
  }
}

TEST_P(AttentionTest, ABadQueryScoresOnlyWhatItSees) {
  Sequences s({2, 2, 64}, kv(), {90});
  std::fill_n(s.qkv[0].begin() + 70 * s.stride, s.heads.q_width(), kPoison);
  const Scored bad = RunScored(s, Whole(s), isa(), 1);
  for (int64_t token = 0; token < 90; ++token) {
    EXPECT_EQ(std::isnan(bad.scores[0][static_cast<size_t>(token)]), token <= 70) << token;
  }
}

TEST_P(AttentionTest, RowsWithAndWithoutScoresInOneCall) {
  const Sequences s({4, 2, 64}, kv(), {70, 90});
  const Scored expected = RunScored(s, Whole(s), isa(), 1);
  Caches caches(s);
  caches.WantScores(s);
  Outputs outputs;
  RunParts(s, caches, {{0, 0, 70}, {1, 0, 90}}, outputs, [&](const AttentionArgs& args) {
    std::vector<AttentionRow> rows(args.rows.begin(), args.rows.end());
    rows[0].token_scores = nullptr;
    AttentionArgs mixed = args;
    mixed.rows = rows;
    AlignedBytes workspace(AttentionWorkspaceBytesWithScores(90, args.head_dim, 2, isa()));
    Attention(mixed, workspace.span(), Pool(2), isa());
  });
  for (const auto& [at, out] : outputs) EXPECT_EQ(Bits(out), Bits(expected.outputs.at(at)));
  EXPECT_EQ(caches.scores[0][0], 0.0F);
  EXPECT_EQ(Bits(caches.scores[1]), Bits(expected.scores[1]));
}

TEST_P(AttentionTest, NoRowsAndNoNewTokens) {
  const Sequences s({2, 2, 16}, kv(), {4, 4});
  EXPECT_TRUE(RunAll(s, {{}}, isa(), 2).empty());
  EXPECT_EQ(RunAll(s, {{{0, 0, 0}, {1, 0, 4}}}, isa(), 2).size(), 4U);
}

}  // namespace
}  // namespace spillway::kernels
