#include "src/machine/cpu_probe.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>

#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "kernels/random_fill.h"
#include "spillway/error.h"

namespace spillway {
namespace {

constexpr int64_t kFarBytes = int64_t{1} << 30;  // several times any cache's size
constexpr int64_t kDeviceBytes = int64_t{1} << 28;
constexpr int64_t kReadBytes = int64_t{1} << 26;  // of one ReadMemory
constexpr int64_t kCopyBytes = int64_t{1} << 21;  // a tile

// The products and heads of OPT-6.7B.
constexpr int64_t kHidden = 4096;
constexpr int64_t kHeadDim = 128;
constexpr int64_t kSlots = 512;  // of a row: the prompt of the published settings
constexpr int64_t kDecodeRows = 32;
constexpr int64_t kRowBytes = 2 * kHidden * kSlots * 2;  // K and V of one layer
constexpr int64_t kTiny = 64;                            // width of a layer of no arithmetic

// Regions of the work arena.
constexpr int64_t kInBytes = CpuProbe::kMaxRows * 3 * kHidden * 4;
constexpr int64_t kOutBytes = CpuProbe::kMaxRows * kHidden * 4;

int64_t WorkspaceBytes(int num_threads, kernels::Isa isa) {
  return std::max(kernels::MatmulWorkspaceBytes(CpuProbe::kMaxRows, kHidden, num_threads, isa),
                  kernels::AttentionWorkspaceBytes(kSlots, kHeadDim, num_threads, isa));
}

// Small numbers, so that no sum leaves fp16; one part is random and the rest repeats it.
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

// The next `bytes` of the far memory, from its start again at the end.
std::byte* CpuProbe::NextFar(int64_t bytes) {
  if (next_far_ + bytes > far_.bytes()) next_far_ = 0;
  std::byte* const begin = far_.View({next_far_, bytes}).data();
  next_far_ += bytes;
  return begin;
}

// One word of each line, in four streams a thread: nothing but the memory is in the way.
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

void CpuProbe::MultiplyBy(const std::byte* weights, int64_t rows, int64_t size) {
  kernels::MatmulPiece piece;
  piece.weight = weights;
  piece.num_out = size;
  piece.y = work_.As<float>({kInBytes, kOutBytes});
  piece.y_stride = size;
  kernels::MatmulArgs args;
  args.x = work_.As<float>({0, kInBytes});
  args.x_stride = size;
  args.rows = rows;
  args.in = size;
  args.pieces = {&piece, 1};
  const int64_t before = kInBytes + kOutBytes;
  kernels::Matmul(args, work_.View({before, work_.bytes() - before}), pool_, isa_);
}

int64_t CpuProbe::Multiply(int64_t rows) {
  SPILLWAY_CHECK(rows <= kMaxRows);
  MultiplyBy(NextFar(kHidden * kHidden * 2), rows, kHidden);
  return 2 * rows * kHidden * kHidden;
}

void CpuProbe::Attend(std::byte* kv, int64_t num_rows, int64_t num_past, int64_t num_new) {
  std::array<kernels::AttentionRow, kDecodeRows> rows;
  for (int64_t row = 0; row < num_rows; ++row) {
    rows[static_cast<std::size_t>(row)] = {kv + row * kRowBytes, kSlots, num_past, num_new,
                                           row * num_new};
  }
  kernels::AttentionArgs args;
  args.q = work_.As<float>({0, kInBytes});
  args.k = args.q + kHidden;
  args.v = args.k + kHidden;
  args.qkv_stride = 3 * kHidden;
  args.out = work_.As<float>({kInBytes, kOutBytes});
  args.out_stride = kHidden;
  args.rows = std::span(rows).first(static_cast<std::size_t>(num_rows));
  args.num_heads = args.num_kv_heads = kHidden / kHeadDim;
  args.head_dim = kHeadDim;
  args.scale = 1.0F / std::sqrt(static_cast<float>(kHeadDim));
  const int64_t before = kInBytes + kOutBytes;
  kernels::Attention(args, work_.View({before, work_.bytes() - before}), pool_, isa_);
}

int64_t CpuProbe::AttendPrefill() {
  Attend(NextFar(kRowBytes), 1, 0, kSlots);
  return 4 * kHidden * (kSlots * (kSlots + 1) / 2);
}

int64_t CpuProbe::AttendDecode() {
  Attend(NextFar(kDecodeRows * kRowBytes), kDecodeRows, kSlots - 1, 1);
  return kDecodeRows * kRowBytes;
}

// Two products and an attention, which is what both kinds of layer come to.
int64_t CpuProbe::Launch() {
  std::byte* near = device_.View({0, kRowBytes}).data();
  MultiplyBy(near, 1, kTiny);
  kernels::AttentionRow row = {near, kKvBlockSlots, 0, 1, 0};
  kernels::AttentionArgs args;
  args.q = args.k = args.v = work_.As<float>({0, kInBytes});
  args.qkv_stride = args.out_stride = kTiny;
  args.out = work_.As<float>({kInBytes, kOutBytes});
  args.rows = {&row, 1};
  args.num_heads = args.num_kv_heads = 1;
  args.head_dim = kTiny;
  const int64_t before = kInBytes + kOutBytes;
  kernels::Attention(args, work_.View({before, work_.bytes() - before}), pool_, isa_);
  MultiplyBy(near, 1, kTiny);
  return 1;
}

// The place of the device's memory that the last kCopyBytes of NextFar go to or come from.
std::byte* CpuProbe::DevicePlace() const {
  return device_.View({(next_far_ - kCopyBytes) % kDeviceBytes, kCopyBytes}).data();
}

int64_t CpuProbe::CopyToDevice() {
  const std::byte* from = NextFar(kCopyBytes);
  std::memcpy(DevicePlace(), from, kCopyBytes);
  return kCopyBytes;
}

int64_t CpuProbe::CopyFromDevice() {
  std::byte* to = NextFar(kCopyBytes);
  std::memcpy(to, DevicePlace(), kCopyBytes);
  return kCopyBytes;
}

}  // namespace spillway
