#include "kernels/kv/kv_layout.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <type_traits>
#include <vector>

#include "kernels/attention/key_centre.h"
#include "kernels/kv/kv_code.h"
#include "kernels/kv/kv_head.h"
#include "kernels/rows/embedding.h"
#include "tests/trace_case.h"

namespace spillway::kernels {
namespace {

struct Heads {
  int64_t num_kv_heads;
  int64_t head_dim;
};
constexpr Heads kHeads[] = {{1, 8}, {2, 16}, {3, 80}, {5, 24}, {8, 128}};

// Parameters: the bits of K and V.
template <typename Form>
class KvOffsetTest : public testing::Test {
 protected:
  static constexpr KvBits kBits = Form::kBits;
  static constexpr int64_t kBlock = Form::kSlots;

  static std::vector<KvLayout> Layouts(const Heads& heads) {
    return {FullKvLayout(heads.num_kv_heads, heads.head_dim, kBits),
            KvLayoutWithState(heads.num_kv_heads, heads.head_dim, kBits),
            FullKvLayout(heads.num_kv_heads, heads.head_dim, kBits, 96),
            KvLayoutWithState(heads.num_kv_heads, heads.head_dim, kBits, 32)};
  }
  // Layout by which the CPU's kernels read and write.
  static KvHead<std::byte> OnCpu(std::byte* none, const KvLayout& layout, int64_t head) {
    return {none, layout.num_kv_heads, layout.head_dim, head, layout.block_bytes, kBits};
  }
};

using AllForms = testing::Types<KvForm<16, 16>, KvForm<8, 8>, KvForm<4, 4>, KvForm<8, 4>,
                                KvForm<4, 16>, KvForm<16, 8>>;
TYPED_TEST_SUITE(KvOffsetTest, AllForms);

// Parameters: the bits of an element.
template <typename Bits>
class KvVectorTest : public testing::Test {};

using AllBits = testing::Types<std::integral_constant<int, 16>, std::integral_constant<int, 8>,
                               std::integral_constant<int, 4>>;
TYPED_TEST_SUITE(KvVectorTest, AllBits);

TYPED_TEST(KvOffsetTest, SlotsLieWhereTheCpuHasThem) {
  for (const Heads heads : kHeads) {
    for (const KvLayout& layout : this->Layouts(heads)) {
      std::vector<std::byte> memory(static_cast<std::size_t>(9 * layout.block_bytes));
      std::byte* none = memory.data();
      for (int64_t head = 0; head < heads.num_kv_heads; ++head) {
        SCOPED_TRACE(
            CaseOf("KV heads", heads.num_kv_heads, "head_dim", heads.head_dim, "head", head));
        const KvHead<std::byte> cpu = this->OnCpu(none, layout, head);
        for (int64_t slot = 0; slot < 70; ++slot) {
          ASSERT_EQ(KvOffset<TypeParam>(layout, KvPart::kKey, head, slot), cpu.Key(slot) - none)
              << slot;
          ASSERT_EQ(KvOffset<TypeParam>(layout, KvPart::kValue, head, slot), cpu.Value(slot) - none)
              << slot;
          ASSERT_EQ(KvRangeOffset<TypeParam>(layout, KvPart::kKey, head, slot),
                    cpu.KeyRanges(slot) - none)
              << slot;
          ASSERT_EQ(KvRangeOffset<TypeParam>(layout, KvPart::kValue, head, slot),
                    cpu.ValueRanges(slot) - none)
              << slot;
        }
      }
    }
  }
}

TYPED_TEST(KvOffsetTest, StateLiesWhereTheCpuHasIt) {
  for (const Heads heads : kHeads) {
    const KvLayout layout = KvLayoutWithState(heads.num_kv_heads, heads.head_dim, TypeParam::kBits);
    std::vector<std::byte> memory(static_cast<std::size_t>(9 * layout.block_bytes));
    std::byte* none = memory.data();
    for (int64_t head = 0; head < heads.num_kv_heads; ++head) {
      SCOPED_TRACE(
          CaseOf("KV heads", heads.num_kv_heads, "head_dim", heads.head_dim, "head", head));
      const KvHead<std::byte> cpu = this->OnCpu(none, layout, head);
      for (int64_t slot = 0; slot < 70; ++slot) {
        ASSERT_EQ(ScoreOffset<TypeParam>(layout, head, slot),
                  reinterpret_cast<std::byte*>(cpu.Score(slot)) - none)
            << slot;
        ASSERT_EQ(PositionOffset<TypeParam>(layout, head, slot),
                  reinterpret_cast<std::byte*>(cpu.Position(slot)) - none)
            << slot;
      }
    }
  }
}

// Every byte of the blocks belongs to one slot's K, V, ranges, score or position, or fills the
// block up.
TYPED_TEST(KvOffsetTest, NothingOverlapsAndLittleIsLeft) {
  for (const Heads heads : kHeads) {
    SCOPED_TRACE(CaseOf("KV heads", heads.num_kv_heads, "head_dim", heads.head_dim));
    const KvLayout layout = KvLayoutWithState(heads.num_kv_heads, heads.head_dim, TypeParam::kBits);
    constexpr int64_t kSlots = 3 * TypeParam::kSlots;
    std::vector<int> uses(static_cast<std::size_t>(3 * layout.block_bytes));
    const auto use = [&](int64_t offset, int64_t bytes) {
      for (int64_t at = offset; at < offset + bytes; ++at) ++uses.at(static_cast<std::size_t>(at));
    };
    for (int64_t head = 0; head < heads.num_kv_heads; ++head) {
      for (int64_t slot = 0; slot < kSlots; ++slot) {
        for (const KvPart part : {KvPart::kKey, KvPart::kValue}) {
          const int bits = TypeParam::Bits(part);
          use(KvOffset<TypeParam>(layout, part, head, slot), KvCodeBytes(heads.head_dim, bits));
          for (int64_t group = 0; bits < 16 && group < KvGroups(heads.head_dim); ++group) {
            use(KvRangeOffset<TypeParam>(layout, part, head, slot) + group * kKvRangeStride, 4);
          }
        }
        use(ScoreOffset<TypeParam>(layout, head, slot), 4);
        use(PositionOffset<TypeParam>(layout, head, slot), 4);
      }
    }
    const int64_t slot_bytes = KvSlotBytes(heads.num_kv_heads, heads.head_dim, TypeParam::kBits) +
                               heads.num_kv_heads * kKvStateBytes;
    const int64_t used = this->kBlock * slot_bytes;
    EXPECT_LE(layout.block_bytes - used, used / 16);
    for (int64_t at = 0; at < std::ssize(uses); ++at) {
      const int expected = at % layout.block_bytes < used ? 1 : 0;
      ASSERT_EQ(uses[static_cast<std::size_t>(at)], expected) << "byte " << at;
    }
  }
}

// A lane's bytes never straddle, whatever the head dimension.
TYPED_TEST(KvOffsetTest, VectorsAreAligned) {
  for (int64_t dim = 8; dim <= 128; dim += 8) {
    SCOPED_TRACE(CaseOf("head_dim", dim));
    for (const KvLayout& layout : this->Layouts({3, dim})) {
      EXPECT_EQ(layout.block_bytes % 16, 0);
      for (int64_t slot = 0; slot < 40; ++slot) {
        SCOPED_TRACE(CaseOf("slot", slot));
        EXPECT_EQ(KvOffset<TypeParam>(layout, KvPart::kValue, 2, slot) %
                      VectorBytes(TypeParam::kBits.value),
                  0);
        EXPECT_EQ(KvRangeOffset<TypeParam>(layout, KvPart::kValue, 2, slot) % 4, 0);
      }
    }
  }
}

// A vector's bits i * kBits are the code of its element i.
TYPED_TEST(KvVectorTest, AVectorsElementsAreWhereTheirCodesLie) {
  constexpr int kBits = TypeParam::value;
  for (int64_t dim = 8; dim <= 128; dim += 8) {
    SCOPED_TRACE(CaseOf("head_dim", dim));
    std::vector<int> uses(static_cast<std::size_t>(dim));
    for (int64_t vector = 0; vector < dim / kVectorElements; ++vector) {
      for (int64_t i = 0; i < kVectorElements; ++i) {
        const int64_t element = VectorElement<kBits>(vector, i, dim);
        ++uses.at(static_cast<std::size_t>(element));
        EXPECT_EQ(element / kKvGroup, vector * kVectorElements / kKvGroup) << "its range";
        if (kBits == 16) {
          EXPECT_EQ(element, vector * kVectorElements + i);
          continue;
        }
        if (kBits == 4) {
          EXPECT_EQ(MeanPlace(element, dim), vector * kVectorElements + i);
        }
        const KvCodePlace place = KvCodeAt(element, dim, kBits);
        EXPECT_EQ(place.byte * 8 + place.shift, vector * VectorBytes(kBits) * 8 + i * kBits)
            << "vector " << vector << " element " << i;
      }
    }
    EXPECT_EQ(uses, std::vector<int>(uses.size(), 1)) << dim;
  }
}

TYPED_TEST(KvVectorTest, OutOfOrderEveryFourthElementIsTheNeighbour) {
  constexpr int kBits = TypeParam::value;
  for (int64_t dim = 8; dim <= 128; dim += 8) {
    for (int64_t vector = 0; vector < dim / kVectorElements; ++vector) {
      SCOPED_TRACE(CaseOf("head_dim", dim, "vector", vector));
      const int64_t apart = IsInOrder<kBits>(vector, dim) ? 1 : 4;
      // Pairs in order are 0 1, 2 3 and so on; else 0 4, 1 5.
      for (int64_t i = 0; i + apart < kVectorElements; i += apart == 1 ? 2 : 1) {
        const int64_t element = VectorElement<kBits>(vector, i, dim);
        EXPECT_EQ(VectorElement<kBits>(vector, i + apart, dim), element + 1);
        EXPECT_EQ(element % 2, 0);  // a pair is stored as one word
      }
    }
  }
}

// A lane has one word of four nibbles of a group that it encodes.
TEST(AttentionIndexTest, ALanesElementsShareAWord) {
  for (int lane = 0; lane < kGroupLanes; ++lane) {
    for (int n = 0; n < kLaneElements; ++n) {
      const KvCodePlace place = KvCodeAt(n * kGroupLanes + lane, kKvGroup, 4);
      EXPECT_EQ(place.byte * 8 + place.shift, lane * 16 + n * 4);
    }
  }
}

TEST(AttentionIndexTest, SplitsCoverEveryKeyOnce) {
  for (int64_t num_keys = 1; num_keys <= 5 * kSplitSlots + 3; ++num_keys) {
    int64_t next = 0;
    for (int64_t split = 0; split < NumSplits(num_keys); ++split) {
      SCOPED_TRACE(CaseOf("keys", num_keys, "split", split));
      const SlotRange range = SplitRange(split, num_keys);
      ASSERT_EQ(range.begin, next);
      ASSERT_GT(range.end, range.begin);
      ASSERT_LE(range.end - range.begin, kSplitSlots);
      next = range.end;
    }
    ASSERT_EQ(next, num_keys);
  }
}

// The place of a key among the splits must not depend on how many come after it.
TEST(AttentionIndexTest, SplitsDoNotMoveAsARowGrows) {
  for (int64_t num_keys = 1; num_keys <= 3 * kSplitSlots; ++num_keys) {
    for (int64_t split = 0; split + 1 < NumSplits(num_keys); ++split) {
      ASSERT_EQ(SplitRange(split, num_keys).begin, SplitRange(split, num_keys + 1).begin);
      ASSERT_EQ(SplitRange(split, num_keys).end, SplitRange(split, num_keys + 1).end);
    }
  }
}

TEST(AttentionIndexTest, KeysOfATileAreThoseItsLastQuerySees) {
  for (const int64_t num_past : {0, 1, 63, 64, 65, 200}) {
    for (int64_t num_new = 1; num_new <= 3 * kTileQueries + 1; ++num_new) {
      for (int64_t begin = 0; begin < num_new; begin += kTileQueries) {
        const int64_t last = std::min(begin + kTileQueries, num_new) - 1;
        ASSERT_EQ(KeysOfTile(begin, num_past, num_new), num_past + last + 1);
      }
    }
  }
}

struct TokenRow {
  int64_t token_offset;
};

TEST(AttentionIndexTest, EveryTokenFindsItsRow) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<TokenRow> rows;
    std::vector<int64_t> row_of;
    const int num_rows = 1 + static_cast<int>(random() % 9);
    for (int row = 0; row < num_rows; ++row) {
      rows.push_back({static_cast<int64_t>(row_of.size())});
      row_of.insert(row_of.end(), 1 + random() % 4, row);
    }
    for (std::size_t token = 0; token < row_of.size(); ++token) {
      ASSERT_EQ(RowOfToken(rows.data(), num_rows, static_cast<int64_t>(token)), row_of[token])
          << "trial " << trial << " token " << token;
    }
  }
}

TEST(AttentionIndexTest, EveryRowOfATableFindsItsPiece) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<EmbeddingPiece> pieces;
    int64_t end = 0;
    const int64_t num_pieces = 1 + static_cast<int64_t>(random() % 8);
    for (int64_t piece = 0; piece < num_pieces; ++piece) {
      const int64_t begin = end;
      end += 1 + static_cast<int64_t>(random() % 5);
      pieces.push_back({nullptr, begin, end});
    }
    for (int64_t row = 0; row < end; ++row) {
      const int64_t piece = PieceOfRow(pieces.data(), num_pieces, row);
      const EmbeddingPiece& found = pieces[static_cast<std::size_t>(piece)];
      ASSERT_TRUE(found.row_begin <= row && row < found.row_end) << row;
    }
  }
}

}  // namespace
}  // namespace spillway::kernels
