// Places of prompts in the workspace: within it, never two at once in one place, and kept from a
// prompt's first chunk to its last.
#include "src/compute/prompt_places.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "spillway/kv_block.h"
#include "spillway/round.h"
#include "tests/trace_case.h"

namespace spillway {
namespace {

struct Taken {
  int64_t begin;
  int64_t end;
  int64_t begin_column;
  int64_t end_column;

  bool operator==(const Taken&) const = default;
};

// Walks all chunks of a pass over prompts of these lengths, as the executor does.
void CheckPass(const std::vector<int64_t>& lengths, int64_t chunk_tokens,
               int64_t prefix_tokens = 0) {
  SCOPED_TRACE(CaseOf("lengths", lengths, "chunk", chunk_tokens, "prefix", prefix_tokens));
  const auto num_rows = static_cast<int64_t>(lengths.size());
  PromptKvPlan plan;
  plan.align = kKvBlockSlots;
  plan.longest_slots = RoundUp(*std::ranges::max_element(lengths), kKvBlockSlots);
  plan.chunk_slots = chunk_tokens + (kKvBlockSlots - 1) * std::min(chunk_tokens, num_rows);
  plan.prefix_tokens = prefix_tokens;
  plan.chunk_prompts = std::min(chunk_tokens, num_rows);
  PromptPlaces places(plan);
  std::vector<PackedRow> rows;
  int64_t num_tokens = 0;
  for (const int64_t length : lengths) {
    rows.push_back({Tier::kCpu, 0, length, num_tokens});
    num_tokens += length;
  }
  std::map<std::size_t, Taken> cut;  // by row: begun and not ended
  for (int64_t begin = 0; begin < num_tokens; begin += chunk_tokens) {
    SCOPED_TRACE(CaseOf("chunk from", begin));
    const int64_t end = std::min(num_tokens, begin + chunk_tokens);
    places.BeginChunk();
    std::vector<Taken> in_use;
    for (std::size_t index = 0; index < rows.size(); ++index) {
      const PackedRow& row = rows[index];
      const TokenRange tokens = {std::max(begin, row.token_offset),
                                 std::min(end, row.token_offset + row.num_new)};
      if (tokens.begin >= tokens.end) continue;
      const auto [place, column] = places.PlaceOf(row, tokens);
      const int64_t own = RoundUp(row.num_new, kKvBlockSlots);
      const Taken taken = {place, place + own, column, column + prefix_tokens + own};
      ASSERT_GE(taken.begin, 0);
      ASSERT_LE(taken.end, plan.slots());
      ASSERT_LE(taken.end_column, plan.columns());
      for (const Taken& other : in_use) {
        ASSERT_TRUE(taken.end <= other.begin || other.end <= taken.begin) << "two in one place";
        ASSERT_TRUE(taken.end_column <= other.begin_column ||
                    other.end_column <= taken.begin_column)
            << "scores of two in one place";
      }
      in_use.push_back(taken);
      if (cut.contains(index)) {
        ASSERT_EQ(cut[index], taken) << "a prompt moved";
      }
      if (tokens.end < row.token_offset + row.num_new) {
        cut[index] = taken;
      } else {
        cut.erase(index);
      }
    }
    ASSERT_LE(cut.size(), 1U);
  }
}

TEST(PromptPlaces, HoldForAllKindsOfCuts) {
  CheckPass({1}, 1);
  CheckPass({5, 5, 5}, 5);
  CheckPass({100, 100}, 30);
  CheckPass({16, 17, 15, 1, 300}, 16);
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::vector<int64_t> lengths(1 + random() % 12);
    for (int64_t& length : lengths)
      length = 1 + static_cast<int64_t>(random() % (round % 2 ? 9 : 200));
    CheckPass(lengths, 1 + static_cast<int64_t>(random() % 64), round % 3 * 64);
  }
}

}  // namespace
}  // namespace spillway
