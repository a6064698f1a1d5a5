#include <algorithm>
#include <cstring>

#include "kernels/kv/kv_head.h"
#include "kernels/kv/kv_log.h"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

KvHead<std::byte> HeadOf(const KvLogRow& row, int64_t kv_head) {
  return {row.kv,
          row.num_kv_heads,
          row.head_dim,
          kv_head,
          KvBlockBytesWithState(row.num_kv_heads, row.head_dim, row.bits) + row.block_fill,
          row.bits};
}

void ToLog(const std::byte* cache, std::byte* log, std::size_t bytes) {
  std::memcpy(log, cache, bytes);
}
void ToCache(std::byte* cache, const std::byte* log, std::size_t bytes) {
  std::memcpy(cache, log, bytes);
}

// Calls copy(state in the cache, state in the log, bytes) for each block that holds tokens. A
// block's state lies behind its K and V, in one run.
template <typename Byte, typename F>
void ForStates(const KvLogRow& row, Byte* state, F copy) {
  const int64_t bytes = KvStateBytes(row.num_kv_heads, KvBlockSlots(row.bits));
  const KvHead<std::byte> first = HeadOf(row, 0);
  for (int64_t slot = 0; slot < row.num_held; slot += first.block_slots(), state += bytes) {
    copy(reinterpret_cast<std::byte*>(first.Score(slot)), state, static_cast<std::size_t>(bytes));
  }
}

// Calls copy(in the cache, in the log, bytes) for what a token has in one slot of one KV head. In
// the log: the key, the value, their ranges group by group, of each group first the key's.
template <typename Byte, typename F>
void ForParts(const KvHead<std::byte>& head, int64_t slot, Byte* token, F copy) {
  const auto take = [&](std::byte* cache, int64_t bytes) {
    copy(cache, token, static_cast<std::size_t>(bytes));
    token += bytes;
  };
  take(head.Key(slot), head.KeyBytes());
  take(head.Value(slot), head.ValueBytes());
  for (int64_t group = 0; group < KvGroups(head.head_dim); ++group) {
    if (group < head.NumKeyRanges()) take(head.KeyRanges(slot) + group * kKvRangeStride, 4);
    if (group < head.NumValueRanges()) take(head.ValueRanges(slot) + group * kKvRangeStride, 4);
  }
}

// Calls visit(slot, position) for what one KV head holds, block by block.
template <typename F>
void ForPositions(const KvHead<std::byte>& head, int64_t num_held, F visit) {
  const int64_t block_slots = head.block_slots();
  for (int64_t begin = 0; begin < num_held; begin += block_slots) {
    const int32_t* positions = head.Position(begin);
    const int64_t count = std::min(block_slots, num_held - begin);
    for (int64_t i = 0; i < count; ++i) visit(begin + i, positions[i]);
  }
}

int64_t SlotOf(const KvHead<std::byte>& head, int64_t num_held, int64_t position) {
  int64_t found = -1;
  ForPositions(head, num_held, [&](int64_t slot, int32_t held) {
    if (held == position) found = slot;
  });
  SPILLWAY_CHECK(found >= 0);
  return found;
}

// Bytes of a token's K and V of one KV head.
int64_t HeadBytes(const KvLogRow& row) { return KvSlotBytes(1, row.head_dim, row.bits); }

}  // namespace

void TakeState(const KvLogRow& row, std::byte* state) { ForStates(row, state, ToLog); }

void TakeToken(const KvLogRow& row, int64_t position, std::byte* token) {
  for (int64_t kv_head = 0; kv_head < row.num_kv_heads; ++kv_head) {
    const KvHead<std::byte> head = HeadOf(row, kv_head);
    const int64_t slot = SlotOf(head, row.num_held, position);
    ForParts(head, slot, token + kv_head * HeadBytes(row), ToLog);
  }
}

void PutLog(const KvLogRow& row, const std::byte* state, const LoggedTokens& log) {
  ForStates(row, state, ToCache);
  for (int64_t kv_head = 0; kv_head < row.num_kv_heads; ++kv_head) {
    const KvHead<std::byte> head = HeadOf(row, kv_head);
    ForPositions(head, row.num_held, [&](int64_t slot, int32_t position) {
      const int64_t step = position - log.first_position;
      if (step < 0) return;
      SPILLWAY_CHECK(step < log.count);
      ForParts(head, slot, log.tokens + step * log.stride + kv_head * HeadBytes(row), ToCache);
    });
  }
}

}  // namespace spillway::kernels
