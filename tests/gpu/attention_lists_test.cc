#include "src/gpu/attention_lists.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "src/gpu/exchange.h"
#include "src/gpu/table_writer.h"
#include "tests/trace_case.h"

namespace spillway {
namespace {

struct Row {
  int64_t num_past;
  int64_t num_new;
  RowPhase phase;
};

kernels::AttentionRow AttentionRowOf(int64_t num_past, int64_t num_new, int64_t token_offset) {
  kernels::AttentionRow row;
  row.num_past = num_past;
  row.num_new = num_new;
  row.token_offset = token_offset;
  return row;
}

std::vector<Row> RandomRows(std::mt19937& random) {
  std::vector<Row> rows;
  const auto num_rows = 1 + random() % 6;
  while (rows.size() < num_rows) {
    constexpr int64_t kEdges[] = {1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 600};
    const int64_t length = kEdges[random() % std::size(kEdges)];
    rows.push_back(random() % 2 == 0 ? Row{0, length, RowPhase::kPrompt}
                                     : Row{length, 1, RowPhase::kDecode});
  }
  return rows;
}

TEST(AttentionListsTest, EveryQueryIsInOneTileAndEveryKeyInOneSplit) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 500; ++trial) {
    SCOPED_TRACE(CaseOf("trial", trial));
    const std::vector<Row> rows = RandomRows(random);
    AttentionLists lists({6, 6 * 600, 6 * 608});
    int64_t token = 0;
    for (const Row& row : rows) {
      lists.Add(AttentionRowOf(row.num_past, row.num_new, token), row.phase);
      token += row.num_new;
    }
    std::map<std::pair<int64_t, int64_t>, int> queries;
    for (const kernels::RowTile& tile : lists.tiles()) {
      const Row& row = rows[static_cast<std::size_t>(tile.row)];
      ASSERT_EQ(row.phase, RowPhase::kPrompt);
      for (int64_t q = tile.begin; q < std::min(tile.begin + kernels::kTileQueries, row.num_new);
           ++q) {
        ++queries[{tile.row, q}];
      }
    }
    std::vector<std::vector<int64_t>> splits(rows.size());
    for (const kernels::DecodeItem& item : lists.items()) {
      splits[static_cast<std::size_t>(item.row)].push_back(item.split);
    }
    for (std::size_t index = 0; index < rows.size(); ++index) {
      SCOPED_TRACE(CaseOf("row", index));
      const Row& row = rows[index];
      const bool decodes = row.phase == RowPhase::kDecode;
      for (int64_t q = 0; q < row.num_new; ++q) {
        ASSERT_EQ((queries[{static_cast<int64_t>(index), q}]), decodes ? 0 : 1);
      }
      const int64_t num_splits = decodes ? kernels::NumSplits(row.num_past + 1) : 0;
      ASSERT_EQ(static_cast<int64_t>(splits[index].size()), num_splits);
      for (int64_t split = 0; split < num_splits; ++split) {
        ASSERT_EQ(splits[index][static_cast<std::size_t>(split)], split) << "in order";
      }
    }
    // The first item of a row finds the others right behind it.
    ASSERT_TRUE(std::ranges::is_sorted(lists.items(), {}, &kernels::DecodeItem::row));
  }
}

// A pass of random rows, cut into chunks as the executor does.
TEST(AttentionListsTest, ATableOfThePlannedSizeHoldsAnyPass) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 500; ++trial) {
    SCOPED_TRACE(CaseOf("trial", trial));
    const std::vector<Row> rows = RandomRows(random);
    AttentionLimits pass = {static_cast<int64_t>(rows.size()), 0, 0, 0};
    float scores = 0.0F;
    float* const wanted = trial % 2 == 0 ? &scores : nullptr;  // only its address is passed on
    for (const Row& row : rows) {
      if (wanted != nullptr) pass.longest = std::max(pass.longest, row.num_new);
      pass.tokens += row.num_new;
      pass.slots +=
          (row.num_past + row.num_new + kKvBlockSlots - 1) / kKvBlockSlots * kKvBlockSlots;
    }
    const int64_t chunk = 1 + static_cast<int64_t>(random() % 700);
    const int64_t num_chunks = pass.tokens / chunk + 3;
    const int64_t bytes = AttentionLists::MaxBytes(pass, num_chunks);
    std::vector<std::byte> host(static_cast<std::size_t>(TableBytes(bytes)));
    TableWriter table(host, nullptr);
    const AttentionLimits in_chunk = {pass.rows, chunk, pass.slots, pass.longest};
    AttentionLists lists(in_chunk);
    for (int64_t begin = 0; begin < pass.tokens; begin += chunk) {
      SCOPED_TRACE(CaseOf("chunk from", begin));
      lists.Clear();
      int64_t offset = 0;
      for (const Row& row : rows) {
        const int64_t from = std::max(begin, offset);
        const int64_t to = std::min({begin + chunk, pass.tokens, offset + row.num_new});
        if (from < to) {
          kernels::AttentionRow listed =
              AttentionRowOf(row.num_past + from - offset, to - from, from - begin);
          const bool in_prompt = row.phase == RowPhase::kPrompt;
          listed.token_scores = in_prompt ? wanted : nullptr;
          lists.Add(listed, row.phase);
          // Rows of a policy that evicts, beside the others.
          if (in_prompt && to == offset + row.num_new) lists.Add(kernels::KvCompactRow{});
          if (!in_prompt) lists.Add(kernels::BudgetAttentionRow{});
        }
        offset += row.num_new;
      }
      // Aborts when it does not fit.
      table.Put(std::span(lists.rows()));
      table.Put(std::span(lists.tiles()));
      table.Put(std::span(lists.items()));
      table.Put(std::span(lists.key_tiles()));
      table.Put(std::span(lists.compact_rows()));
      table.Put(std::span(lists.budget_rows()));
      ASSERT_LE(static_cast<int64_t>(lists.key_tiles().size()),
                AttentionLists::MaxKeyTiles(in_chunk));
      ASSERT_LE(static_cast<int64_t>(lists.items().size()),
                kernels::MaxDecodeItems(pass.rows, pass.slots));
      ASSERT_LE(static_cast<int64_t>(lists.tiles().size()), kernels::MaxRowTiles(pass.rows, chunk));
    }
  }
}

TEST(TableWriterTest, TheGpuFindsWhatTheHostWrote) {
  std::vector<std::byte> host(1024);
  std::vector<std::byte> gpu(1024);
  TableWriter table(host, gpu.data());
  const std::vector<int32_t> ids = {5, 6, 7};
  const std::vector<double> others = {1.5, 2.5};
  const auto ids_there = table.Put(std::span(ids));
  const auto none = table.Put(std::span<const int32_t>());
  const auto others_there = table.Put(std::span(others));
  EXPECT_TRUE(none.empty());
  const auto written = table.written();
  ASSERT_EQ(written.data(), host.data());
  std::ranges::copy(written, gpu.begin());
  EXPECT_TRUE(std::ranges::equal(ids_there, ids));
  EXPECT_TRUE(std::ranges::equal(others_there, others));
  const auto offset = reinterpret_cast<const std::byte*>(others_there.data()) - gpu.data();
  EXPECT_EQ(offset % kTableAlignBytes, 0);
}

}  // namespace
}  // namespace spillway
