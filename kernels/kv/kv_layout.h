// The index arithmetic of the GPU's attention kernels: where a slot lies, which tiles and splits a
// row is cut into, which row a token belongs to. constexpr, so that kernels and host tests run the
// same code. Pure functions; any thread.
#pragma once

#include <cstdint>

#include "spillway/kv_block.h"

namespace spillway::kernels {

// One layer's cache of a row (spillway/kv_block.h): blocks of KvBlockSlots(bits) slots that begin
// `block_bytes` apart, with or without the state of a policy that evicts. KvHead (kv_head.h) is the
// CPU's view of the same.
struct KvLayout {
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  KvBits bits = {};  // of an element
  int64_t block_bytes = 0;
};

enum class KvPart { kKey, kValue };

// block_fill: bytes behind each block.
constexpr KvLayout FullKvLayout(int64_t num_kv_heads, int64_t head_dim, KvBits bits = {},
                                int64_t block_fill = 0) {
  return {num_kv_heads, head_dim, bits, KvBlockBytes(num_kv_heads, head_dim, bits) + block_fill};
}

constexpr KvLayout KvLayoutWithState(int64_t num_kv_heads, int64_t head_dim, KvBits bits = {},
                                     int64_t block_fill = 0) {
  return {num_kv_heads, head_dim, bits,
          KvBlockBytesWithState(num_kv_heads, head_dim, bits) + block_fill};
}

// Bits of K and of V at compile time.
template <int kOfKeys, int kOfValues>
struct KvForm {
  static constexpr KvBits kBits = {kOfKeys, kOfValues};
  static constexpr int64_t kSlots = KvBlockSlots(kBits);  // of a block

  static constexpr int Bits(KvPart part) { return part == KvPart::kKey ? kOfKeys : kOfValues; }
};

// Offset in a row's cache, in bytes, of one head's K or V in the block of `slot`. Requires, here
// and below: Form::kBits == layout.bits.
template <typename Form>
constexpr int64_t KvRunOffset(const KvLayout& layout, KvPart part, int64_t kv_head, int64_t slot) {
  const int64_t of_keys = Form::kSlots * KvTokenBytes(layout.head_dim, Form::kBits.key);
  const int64_t of_part = Form::kSlots * KvTokenBytes(layout.head_dim, Form::Bits(part));
  return slot / Form::kSlots * layout.block_bytes +
         (part == KvPart::kKey ? 0 : layout.num_kv_heads * of_keys) + kv_head * of_part;
}

// Where the slots of a row of attention lie: its first ones may be elsewhere (AttentionRow).
struct RowSlots {
  const std::byte* prefix;
  const std::byte* kv;
  int64_t prefix_slots;

  // The place from which a slot's offset counts. Slots that no multiple of 64 parts have one.
  template <typename Form>
  constexpr const std::byte* Base(const KvLayout& layout, int64_t slot) const {
    return slot < prefix_slots ? prefix : kv - prefix_slots / Form::kSlots * layout.block_bytes;
  }
};

// Row: an AttentionRow.
template <typename Row>
constexpr RowSlots SlotsOf(const Row& row) {
  return {row.prefix, row.kv, row.prefix_slots};
}

// Offset of a slot's elements, or their codes.
template <typename Form>
constexpr int64_t KvOffset(const KvLayout& layout, KvPart part, int64_t kv_head, int64_t slot) {
  return KvRunOffset<Form>(layout, part, kv_head, slot) +
         slot % Form::kSlots * KvCodeBytes(layout.head_dim, Form::Bits(part));
}

// Offset of the {min, scale} of a slot's first group; the others are kKvRangeStride apart.
// Requires: the part's bits are below 16.
template <typename Form>
constexpr int64_t KvRangeOffset(const KvLayout& layout, KvPart part, int64_t kv_head,
                                int64_t slot) {
  return KvRunOffset<Form>(layout, part, kv_head, slot) +
         Form::kSlots * KvCodeBytes(layout.head_dim, Form::Bits(part)) + slot % Form::kSlots * 4;
}

// Offset of a slot's score. Requires: a layout with state.
template <typename Form>
constexpr int64_t ScoreOffset(const KvLayout& layout, int64_t kv_head, int64_t slot) {
  return slot / Form::kSlots * layout.block_bytes +
         KvBlockBytes(layout.num_kv_heads, layout.head_dim, Form::kBits) +
         (kv_head * Form::kSlots + slot % Form::kSlots) * 4;
}

// Offset of a slot's position. Requires: a layout with state.
template <typename Form>
constexpr int64_t PositionOffset(const KvLayout& layout, int64_t kv_head, int64_t slot) {
  return ScoreOffset<Form>(layout, layout.num_kv_heads + kv_head, slot);
}

// A vector is the 8 elements of a token's K or V that a lane reads at once, one behind the other in
// memory. At 4 bits in a whole group these are two of each 16 elements (KvCodeAt).
inline constexpr int kVectorElements = 8;

constexpr int64_t VectorBytes(int bits) { return kVectorElements * bits / 8; }

// True: a vector's elements are neighbours along head_dim.
template <int kBits>
constexpr bool IsInOrder(int64_t vector, int64_t head_dim) {
  return kBits != 4 || vector * kVectorElements / kKvGroup * kKvGroup + kKvGroup > head_dim;
}

// Dimension of a vector's element number i, in memory's order. Out of order i and i + 4 are
// neighbours.
template <int kBits>
constexpr int64_t VectorElement(int64_t vector, int64_t i, int64_t head_dim) {
  const int64_t first = vector * kVectorElements;
  if (IsInOrder<kBits>(vector, head_dim)) return first + i;
  const int64_t group = first / kKvGroup * kKvGroup;
  return group + i % 4 * 16 + vector % (kKvGroup / kVectorElements) * 2 + i / 4;
}

// A group is encoded by this many neighbouring lanes: lane j has elements 16 n + j, which at 4 bits
// are the nibbles n of one word.
inline constexpr int kGroupLanes = 16;
inline constexpr int kLaneElements = static_cast<int>(kKvGroup) / kGroupLanes;

// Decode attention: a row's keys in splits of this many slots, each computed by a block of its own.
// Fixed, and not chosen by how busy the GPU is: a row's bits must not depend on its neighbours.
inline constexpr int64_t kSplitSlots = 256;

constexpr int64_t NumSplits(int64_t num_keys) { return (num_keys + kSplitSlots - 1) / kSplitSlots; }

constexpr SlotRange SplitRange(int64_t split, int64_t num_keys) {
  const int64_t begin = split * kSplitSlots;
  const int64_t end = begin + kSplitSlots;
  return {begin, end < num_keys ? end : num_keys};
}

// A split of a row of the packed batch. A row's splits are listed one behind the other.
struct DecodeItem {
  int32_t row = 0;
  int32_t split = 0;
};

// The most items that rows with this many slots together can have.
constexpr int64_t MaxDecodeItems(int64_t rows, int64_t slots) { return rows + slots / kSplitSlots; }

// Floats of one item's part of the result: for each head the weighted sum of V, the maximum and the
// sum of the weights.
constexpr int64_t PartialFloats(int64_t num_heads, int64_t head_dim) {
  return num_heads * (head_dim + 2);
}

// Prefill attention: queries of one row and head that a block computes, and keys that it reads at a
// time.
inline constexpr int64_t kTileQueries = 64;
inline constexpr int64_t kTileKeys = 64;

// Queries [begin, begin + kTileQueries) of a row's new tokens; or keys, of all its slots.
struct RowTile {
  int32_t row = 0;
  int32_t begin = 0;
};

// The most tiles that rows with this many tokens together can have.
constexpr int64_t MaxRowTiles(int64_t rows, int64_t tokens) { return rows + tokens / kTileQueries; }

// Keys that queries [begin, begin + kTileQueries) of `num_new` see together.
constexpr int64_t KeysOfTile(int64_t begin, int64_t num_past, int64_t num_new) {
  const int64_t end = begin + kTileQueries;
  return num_past + (end < num_new ? end : num_new);
}

// The row that a packed token belongs to: the last that begins at or before it. Row: has
// token_offset, ascending. Requires: num_rows > 0, rows[0].token_offset <= token.
template <typename Row>
constexpr int64_t RowOfToken(const Row* rows, int64_t num_rows, int64_t token) {
  int64_t low = 0;
  int64_t high = num_rows;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (rows[middle].token_offset <= token ? low : high) = middle;
  }
  return low;
}

// The piece of a table that holds a row of it. Piece: has row_end, ascending. Requires: one of them
// holds it.
template <typename Piece>
constexpr int64_t PieceOfRow(const Piece* pieces, int64_t num_pieces, int64_t row) {
  int64_t low = 0;
  int64_t high = num_pieces - 1;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (row < pieces[middle].row_end) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace spillway::kernels
