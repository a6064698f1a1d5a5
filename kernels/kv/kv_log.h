// KvLog: the changes that decode steps make to a row's cache of fixed size, kept apart from it:
// each step's new K and V of all KV heads, and the state of all held tokens. An older copy of the
// cache, the tokens of the steps since then and the newest state restore it: the state's positions
// say which slot each token took. So a row is written to disk whole only every few passes. Plain
// functions on one row; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "spillway/kv_block.h"

namespace spillway::kernels {

// A row's cache of one layer, with state. num_held: tokens in slots [0, num_held) of each KV head.
struct KvLogRow {
  std::byte* kv = nullptr;
  int64_t num_held = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  KvBits bits = {};
  int64_t block_fill = 0;  // bytes behind each block
};

// Copies the state of the blocks that hold tokens out: KvStateBytes of their slots.
void TakeState(const KvLogRow& row, std::byte* state);
// Copies K and V of the token at `position` out: KvSlotBytes. Requires: each KV head holds it.
void TakeToken(const KvLogRow& row, int64_t position, std::byte* token);

// Tokens of a row's last steps in the log: that at first_position + i is at tokens + i * stride.
struct LoggedTokens {
  const std::byte* tokens = nullptr;
  int64_t stride = 0;
  int64_t count = 0;
  int64_t first_position = 0;
};

// Makes the row's cache what it was when `state` was taken. Requires: num_held as then, and no
// token behind the log's; K and V from before first_position are in the slots where they were.
void PutLog(const KvLogRow& row, const std::byte* state, const LoggedTokens& log);

}  // namespace spillway::kernels
