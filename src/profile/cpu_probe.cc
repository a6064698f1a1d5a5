#include "src/profile/cpu_probe.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>

#include "kernels/attention/attention.h"
#include "kernels/attention/budget_attention.h"
#include "kernels/attention/kv_compact.h"
#include "kernels/matmul/matmul.h"
#include "kernels/rows/norm.h"
#include "kernels/rows/random_fill.h"
#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "src/sampling/token_choice.h"

namespace spillway {
namespace {

constexpr int64_t kFarBytes = int64_t{1} << 30;  // several times any cache's size
constexpr int64_t kDeviceBytes = int64_t{1} << 28;
constexpr int64_t kReadBytes = int64_t{1} << 26;  // of one ReadMemory
constexpr int64_t kTouchBytes = int64_t{1} << 26;
constexpr int64_t kCopyBytes = int64_t{1} << 21;  // a tile

constexpr int64_t kHidden = CpuProbe::kHidden;
constexpr int64_t kHeadDim = 128;
constexpr int64_t kNumHeads = kHidden / kHeadDim;
constexpr int64_t kSlots = 512;  // of a row: the prompt of the published settings
constexpr int64_t kPairs = kSlots * (kSlots + 1) / 2;  // of a prompt that long
constexpr int64_t kDecodeRows = 32;
constexpr int64_t kRowBytes = 2 * kHidden * kSlots * 2;  // K and V of one layer
constexpr int64_t kTiny = 64;                            // width of a layer of no arithmetic

// Budget and cache of a row that evicts: a fifth of its slots, half heavy and half recent, with
// state.
constexpr KvKeep kKeep = {0, 51, 52};
constexpr int64_t kKeptSlots = 112;
constexpr int64_t kKeptBytes = kKeptSlots * KvSlotBytesWithState(kNumHeads, kHeadDim);

constexpr int64_t kNormRows = 128;  // states that no first-level cache holds
// Logits as the head of OPT leaves them: other threads wrote them, and no near cache holds them
// all. Fewer than a tile's bytes.
constexpr int64_t kNumLogits = 50'272;

constexpr int64_t kMaxPrompts = 4;

// Regions of the work arena.
constexpr int64_t kInBytes = CpuProbe::kMaxRows * 3 * kHidden * 4;
constexpr int64_t kOutBytes = CpuProbe::kMaxRows * kHidden * 4;

int64_t WorkspaceBytes(int num_threads, kernels::Isa isa) {
  return std::max({kernels::MatmulWorkspaceBytes(CpuProbe::kMaxRows, kHidden, num_threads, isa),
                   kernels::AttentionWorkspaceBytesWithScores(kSlots, kHeadDim, num_threads, isa),
                   kernels::BudgetAttentionWorkspaceBytes(kSlots, kHeadDim, num_threads, isa),
                   kernels::KvCompactWorkspaceBytes(kSlots, num_threads)});
}

// Fills with small numbers, so that no sum leaves fp16; one part is random and the rest repeats it.
void Fill(const HostArena& arena, DType dtype) {
  const std::span<std::byte> all = arena.View({0, arena.bytes()});
  const std::size_t part = std::min<std::size_t>(all.size(), std::size_t{1} << 24);
  kernels::FillUniform(all.first(part), dtype, 7, 0, 0.05F);
  for (std::size_t at = part; at < all.size(); at += part)
    std::memcpy(all.data() + at, all.data(), std::min(part, all.size() - at));
}

}  // namespace

int64_t CpuProbe::Bytes(int num_threads, kernels::Isa isa) {
  return kFarBytes + kDeviceBytes + kInBytes + kOutBytes + WorkspaceBytes(num_threads, isa);
}

CpuProbe::CpuProbe(ThreadPool& pool, kernels::Isa isa)
    : pool_(pool),
      isa_(isa),
      far_(kFarBytes),
      device_(kDeviceBytes),
      work_(kInBytes + kOutBytes + WorkspaceBytes(pool.num_threads(), isa)) {
  Fill(far_, DType::kF16);
  Fill(device_, DType::kF16);
  Fill(work_, DType::kF32);
}

// The next `bytes` of the far memory that is not for copies, from its start again at the end.
std::byte* CpuProbe::NextFar(int64_t bytes) {
  if (next_far_ + bytes > kFarBytes - kDeviceBytes) next_far_ = 0;
  std::byte* const begin = far_.View({next_far_, bytes}).data();
  next_far_ += bytes;
  return begin;
}

// Reads one byte of each line, in four streams a thread, so that memory is the only limit.
int64_t CpuProbe::ReadMemory() {
  constexpr int64_t kChunk = 1 << 20;
  constexpr int64_t kStream = kChunk / 4;
  constexpr int64_t kLine = 64;
  const std::byte* data = NextFar(kReadBytes);
  std::atomic<uint64_t> total{0};  // keeps the loads alive
  auto task = [&](int64_t chunk, int /*worker*/) {
    const std::byte* from = data + chunk * kChunk;
    uint64_t sum = 0;
    for (int64_t at = 0; at < kStream; at += kLine) {
      for (int64_t stream = 0; stream < 4; ++stream)
        sum += std::to_integer<uint64_t>(from[stream * kStream + at]);
    }
    total += sum;
  };
  pool_.Run(kReadBytes / kChunk, task);
  return kReadBytes;
}

void CpuProbe::MultiplyBy(const std::byte* weights, DType dtype, int64_t rows, int64_t size) {
  kernels::MatmulPiece piece;
  piece.weight = weights;
  piece.weight_dtype = dtype;
  piece.num_out = size;
  piece.y = work_.As<float>({kInBytes, kOutBytes});
  piece.y_stride = size;
  kernels::MatmulArgs args;
  args.x = work_.As<float>({0, kInBytes});
  args.x_stride = size;
  args.rows = rows;
  args.in = size;
  args.pieces = {&piece, 1};
  kernels::Matmul(args, Workspace(), pool_, isa_);
}

std::span<std::byte> CpuProbe::Workspace() const {
  const int64_t before = kInBytes + kOutBytes;
  return work_.View({before, work_.bytes() - before});
}

// Random halfs serve as quantised weights too: as codes, and as small minima and steps of groups.
int64_t CpuProbe::Multiply(int64_t rows, int64_t width, DType weights) {
  SPILLWAY_CHECK(rows <= kMaxRows);
  MultiplyBy(NextFar(width * RowBytes(weights, width)), weights, rows, width);
  return 2 * rows * width * width;
}

// Inputs and outputs of heads of this dimension that fill the width; no rows yet.
kernels::AttentionTensors CpuProbe::Heads(int64_t head_dim) const {
  kernels::AttentionTensors args;
  args.q = work_.As<float>({0, kInBytes});
  args.k = args.q + kHidden;
  args.v = args.k + kHidden;
  args.qkv_stride = 3 * kHidden;
  args.out = work_.As<float>({kInBytes, kOutBytes});
  args.out_stride = kHidden;
  args.num_heads = args.num_kv_heads = kHidden / head_dim;
  args.head_dim = head_dim;
  args.scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  return args;
}

int64_t CpuProbe::AttendPrefill(int64_t head_dim, int64_t prompt_tokens) {
  std::array<kernels::AttentionRow, kMaxPrompts> rows;
  const int64_t num_rows = kSlots / prompt_tokens;
  SPILLWAY_CHECK(num_rows <= kMaxPrompts);
  std::byte* const kv = NextFar(kRowBytes);
  for (int64_t row = 0; row < num_rows; ++row) {
    rows[static_cast<std::size_t>(row)] = {kv + row * (kRowBytes / num_rows), prompt_tokens, 0,
                                           prompt_tokens, row * prompt_tokens};
  }
  const auto used = std::span(rows).first(static_cast<std::size_t>(num_rows));
  kernels::Attention({Heads(head_dim), used, 0}, Workspace(), pool_, isa_);
  return 4 * kHidden * num_rows * (prompt_tokens * (prompt_tokens + 1) / 2);
}

int64_t CpuProbe::AttendDecode() {
  std::byte* const kv = NextFar(kDecodeRows * kRowBytes);
  std::array<kernels::AttentionRow, kDecodeRows> rows;
  for (int64_t row = 0; row < kDecodeRows; ++row) {
    rows[static_cast<std::size_t>(row)] = {kv + row * kRowBytes, kSlots, kSlots - 1, 1, row};
  }
  kernels::Attention({Heads(kHeadDim), rows, 0}, Workspace(), pool_, isa_);
  return kDecodeRows * kRowBytes;
}

int64_t CpuProbe::EvictPrefill() {
  std::byte* const kv = NextFar(kRowBytes);
  float* const scores = device_.As<float>({0, kNumHeads * kSlots * int64_t{sizeof(float)}});
  std::fill_n(scores, kNumHeads * kSlots, 0.0F);
  const kernels::AttentionRow row = {kv, kSlots, 0, kSlots, 0, scores};
  kernels::Attention({Heads(kHeadDim), {&row, 1}, kSlots}, Workspace(), pool_, isa_);
  const kernels::KvCompactRow kept = {kv, scores, kSlots, NextFar(kKeptBytes), kKeptSlots, kKeep};
  kernels::KvCompact({{&kept, 1}, KvPolicyKind::kH2o, kSlots, kNumHeads, kNumHeads, kHeadDim},
                     Workspace(), pool_);
  return 4 * kHidden * kPairs;
}

// Rows are one token short of their budget, so that no call depends on what the one before it left.
int64_t CpuProbe::EvictDecode() {
  const int64_t held = kKeep.slots() - 1;
  std::byte* const kv = NextFar(kDecodeRows * kKeptBytes);
  std::array<kernels::BudgetAttentionRow, kDecodeRows> rows;
  for (int64_t row = 0; row < kDecodeRows; ++row) {
    rows[static_cast<std::size_t>(row)] = {
        kv + row * kKeptBytes, kKeptSlots, held, kSlots, kKeep, row};
  }
  kernels::BudgetAttention({Heads(kHeadDim), rows, KvPolicyKind::kH2o}, Workspace(), pool_, isa_);
  return kDecodeRows * (held + 1) * KvSlotBytes(kNumHeads, kHeadDim);
}

int64_t CpuProbe::TouchFirst() {
  const HostArena fresh(kTouchBytes);
  auto task = [&](int64_t chunk, int /*worker*/) {
    std::memset(fresh.View({chunk * kCopyBytes, kCopyBytes}).data(), 1, kCopyBytes);
  };
  pool_.Run(kTouchBytes / kCopyBytes, task);
  return kTouchBytes;
}

int64_t CpuProbe::Normalize() {
  kernels::NormArgs args;
  args.x = work_.As<float>({0, kInBytes});
  args.y = work_.As<float>({kInBytes, kOutBytes});
  args.x_stride = args.y_stride = args.cols = kHidden;
  args.rows = kNormRows;
  args.weight = args.bias = args.x;
  kernels::Norm(args, pool_, isa_);
  return kNormRows * kHidden;
}

int64_t CpuProbe::ChooseToken() {
  const auto* const logits = reinterpret_cast<const float*>(NextCopy().host);
  const std::optional<TokenId> token = ArgMax({logits, kNumLogits});
  SPILLWAY_CHECK(token.has_value());
  return kNumLogits;
}

// Runs two products and an attention, of hardly any arithmetic: the calls of one layer.
int64_t CpuProbe::Launch() {
  std::byte* near = device_.View({0, kRowBytes}).data();
  MultiplyBy(near, DType::kF16, 1, kTiny);
  const kernels::AttentionRow row = {near, kKvBlockSlots, 0, 1, 0};
  kernels::AttentionArgs args;
  args.q = args.k = args.v = work_.As<float>({0, kInBytes});
  args.qkv_stride = args.out_stride = kTiny;
  args.out = work_.As<float>({kInBytes, kOutBytes});
  args.rows = {&row, 1};
  args.num_heads = args.num_kv_heads = 1;
  args.head_dim = kTiny;
  kernels::Attention(args, Workspace(), pool_, isa_);
  MultiplyBy(near, DType::kF16, 1, kTiny);
  return 1;
}

// A tile's places in the host's memory and in the device's; the next one at each call.
CpuProbe::CopyPlaces CpuProbe::NextCopy() {
  const int64_t at = next_copy_;
  next_copy_ = (next_copy_ + kCopyBytes) % kDeviceBytes;
  return {far_.View({kFarBytes - kDeviceBytes + at, kCopyBytes}).data(),
          device_.View({at, kCopyBytes}).data()};
}

int64_t CpuProbe::CopyToDevice() {
  const CopyPlaces places = NextCopy();
  std::memcpy(places.device, places.host, kCopyBytes);
  return kCopyBytes;
}

int64_t CpuProbe::CopyFromDevice() {
  const CopyPlaces places = NextCopy();
  std::memcpy(places.host, places.device, kCopyBytes);
  return kCopyBytes;
}

}  // namespace spillway
