// The update of scores and the choice of victims against a loop over the tokens, to the bit: with
// state that no run of the rule would bring about too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/attention/attention_isa.h"
#include "kernels/attention/budget_attention_isa.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"
#include "src/base/isa.h"
#include "tests/kernels/kernel_test_util.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kSpareHeads = 1;     // behind the task's: another worker's
constexpr int64_t kNewest = 16777210;  // of the positions below 2^24

struct UpdateCase {
  int64_t block_slots;
  int64_t group;  // 0: scores do not matter
  int64_t num_heads;
  int64_t num_held;
};

void PrintTo(const UpdateCase& c, std::ostream* out) {
  *out << "blocks of " << c.block_slots << ", group " << c.group << ", heads " << c.num_heads
       << ", held " << c.num_held;
}

// A task of random state, weights and factors. Slots not held look as if their tokens should go.
class State {
 public:
  State(const UpdateCase& update_case, uint32_t seed);
  BudgetTask Task();
  void Expect(Isa isa);
  void CheckAgainst(State& updated, const BudgetTask& task);

 private:
  int64_t num_slots() const { return RoundUp(c_.num_held, kAttentionKeys); }
  int64_t head_bytes() const { return c_.block_slots * 4; }
  int64_t block_bytes() const { return 2 * (c_.num_heads + kSpareHeads) * head_bytes() + 64; }
  std::byte* At(int64_t head, int64_t slot) {
    return blocks_.data() + slot / c_.block_slots * block_bytes() + head * head_bytes() +
           slot % c_.block_slots * 4;
  }
  float& Score(int64_t head, int64_t slot) { return *reinterpret_cast<float*>(At(head, slot)); }
  int32_t& Position(int64_t head, int64_t slot) {
    return *reinterpret_cast<int32_t*>(At(c_.num_heads + kSpareHeads + head, slot));
  }
  float Weight(int64_t query, int64_t slot) const;
  float Added(int64_t head, int64_t slot, Isa isa) const;
  int64_t Victim(int64_t head);

  UpdateCase c_;
  AlignedBytes blocks_;
  std::vector<float> weights_;
  std::vector<float> factors_;
  std::vector<float> lowest_;
  std::vector<int64_t> victims_;
  int64_t first_candidate_ = 0;
  int64_t last_candidate_ = 0;
};

State::State(const UpdateCase& update_case, uint32_t seed)
    : c_(update_case),
      blocks_(num_slots() / c_.block_slots * block_bytes()),
      lowest_(static_cast<size_t>(c_.num_heads * kLowestFloats), kPoison),
      victims_(static_cast<size_t>(c_.num_heads), -7) {
  std::mt19937 random(seed);
  const int64_t queries = c_.num_heads * c_.group;
  weights_ = RandomFloats(num_slots() * queries, seed + 1);
  factors_ = RandomFloats(num_slots() / kAttentionKeys * kDecodeQueries, seed + 2);
  // Few values, some of no order: ties within a lane, across lanes, and across blocks.
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kScores[] = {1, 1, 1, 2, -1, -0.0F, 0.0F, kPoison, -kInfinity, kInfinity};
  const bool many_ties = random() % 2 == 0;
  if (many_ties) std::ranges::fill(weights_, 0.0F);
  const auto num_kinds = 1 + random() % std::size(kScores);
  first_candidate_ = kNewest - num_slots() + 3;
  last_candidate_ = kNewest - static_cast<int64_t>(random() % 20);
  for (int64_t head = 0; head < c_.num_heads + kSpareHeads; ++head) {
    std::vector<int32_t> positions(static_cast<size_t>(num_slots()));
    for (size_t i = 0; i < positions.size(); ++i)
      positions[i] = static_cast<int32_t>(kNewest - static_cast<int64_t>(i));
    std::shuffle(positions.begin(), positions.end(), random);
    for (int64_t slot = 0; slot < num_slots(); ++slot) {
      const bool held = slot < c_.num_held;
      Position(head, slot) = positions[static_cast<size_t>(slot)];
      Score(head, slot) = held ? kScores[random() % num_kinds] : -kInfinity;
    }
  }
}

BudgetTask State::Task() {
  return {.scores = At(0, 0),
          .positions = At(c_.num_heads + kSpareHeads, 0),
          .head_bytes = head_bytes(),
          .block_bytes = block_bytes(),
          .block_slots = c_.block_slots,
          .num_heads = c_.num_heads,
          .num_held = c_.num_held,
          .weights = c_.group == 0 ? nullptr : weights_.data(),
          .factors = factors_.data(),
          .group = std::max<int64_t>(1, c_.group),
          .first_candidate = first_candidate_,
          .last_candidate = last_candidate_,
          .lowest = lowest_.data(),
          .victims = victims_.data()};
}

float State::Weight(int64_t query, int64_t slot) const {
  const int64_t block = slot / kAttentionKeys * c_.num_heads * c_.group;
  return weights_[static_cast<size_t>((block + query) * kAttentionKeys + slot % kAttentionKeys)];
}

// Sum over the group's queries in their order, with one rounding where the instruction set has
// that.
float State::Added(int64_t head, int64_t slot, Isa isa) const {
  float sum = 0;
  for (int64_t i = 0; i < c_.group; ++i) {
    const int64_t query = head * c_.group + i;
    const float weight = Weight(query, slot);
    const float factor =
        factors_[static_cast<size_t>(slot / kAttentionKeys * kDecodeQueries + query)];
    if (i == 0) {
      sum = weight * factor;
    } else {
      sum = isa == Isa::kPortable ? sum + weight * factor : std::fma(weight, factor, sum);
    }
  }
  return sum;
}

int64_t State::Victim(int64_t head) {
  int64_t victim = -1;
  const auto goes_before = [&](int64_t a, int64_t b) {
    const auto standing = [&](int64_t slot) {
      const float score = c_.group == 0 ? 0 : Score(head, slot);
      return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
    };
    if (standing(a) != standing(b)) return standing(a) < standing(b);
    return Position(head, a) > Position(head, b);
  };
  for (int64_t slot = 0; slot < c_.num_held; ++slot) {
    const int64_t position = Position(head, slot);
    if (position < first_candidate_ || position > last_candidate_) continue;
    if (victim < 0 || goes_before(slot, victim)) victim = slot;
  }
  return victim;
}

// Expects what an update of this state must bring about.
void State::Expect(Isa isa) {
  for (int64_t head = 0; head < c_.num_heads; ++head) {
    for (int64_t slot = 0; slot < c_.num_held && c_.group > 0; ++slot)
      Score(head, slot) += Added(head, slot, isa);
    victims_[static_cast<size_t>(head)] = Victim(head);
  }
}

void State::CheckAgainst(State& updated, const BudgetTask& task) {
  for (size_t head = 0; head < victims_.size(); ++head)
    EXPECT_EQ(task.victims[head], victims_[head]) << "head " << head;
  for (int64_t head = 0; head < c_.num_heads + kSpareHeads; ++head) {
    const bool is_spare = head >= c_.num_heads;
    for (int64_t slot = 0; slot < num_slots(); ++slot) {
      ASSERT_EQ(updated.Position(head, slot), Position(head, slot));
      if (slot >= c_.num_held && !is_spare) continue;  // may change
      const float a = updated.Score(head, slot);
      const float b = Score(head, slot);
      ASSERT_TRUE((std::isnan(a) && std::isnan(b)) || Bits({&a, 1}) == Bits({&b, 1}))
          << a << " for " << b << ", head " << head << ", slot " << slot;
    }
  }
}

class BudgetUpdateTest : public testing::TestWithParam<Isa> {};

INSTANTIATE_TEST_SUITE_P(All, BudgetUpdateTest, testing::ValuesIn(SupportedIsas()), IsaParamName);

TEST_P(BudgetUpdateTest, ScoresAndVictimsAreALoopsToTheBit) {
  uint32_t seed = 0;
  for (const int64_t block_slots : {kKvBlockSlots, kKvCodedBlockSlots}) {
    for (const int64_t group : {0, 1, 2, 3, 8}) {
      for (const int64_t num_heads : {1, 2, 3, 5, 16}) {
        if (num_heads * group > kDecodeQueries) continue;
        for (const int64_t num_held :
             {1, 2, 7, 8, 9, 16, 17, 63, 64, 65, 72, 127, 128, 129, 200, 320}) {
          const UpdateCase c{block_slots, group, num_heads, num_held};
          SCOPED_TRACE(testing::PrintToString(c));
          State state(c, ++seed);
          State expected(c, seed);
          expected.Expect(GetParam());
          const BudgetTask task = state.Task();
          UpdateBudgetOf(GetParam())(task);
          ASSERT_NO_FATAL_FAILURE(expected.CheckAgainst(state, task));
        }
      }
    }
  }
}

}  // namespace
}  // namespace spillway::kernels
