// TileUnit: the eight tile registers of a thread (AMX) and what the kernels do with them. With
// SPILLWAY_SOFT_TILES they are memory, for tests on processors without the unit; sums of bf16 are
// then rounded in an order of their own. Private to the kernels: compiled with the unit's flags.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace spillway::kernels {
namespace {

constexpr int64_t kTileBytes = 1024;

// Shapes of the registers, as ldtilecfg reads them.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t column_bytes[16] = {};
  uint8_t rows[16] = {};
};

#if defined(SPILLWAY_SOFT_TILES)

struct SoftTiles {
  TileConfig config;
  alignas(64) std::byte tiles[8][16][64];
};
thread_local SoftTiles soft_tiles;

// Stops where the unit would fault.
inline void Require(bool holds) {
  if (!holds) __builtin_trap();
}

inline void SetTiles(const TileConfig& config) {
  for (int tile = 0; tile < 8; ++tile)
    Require(config.rows[tile] <= 16 && config.column_bytes[tile] <= 64);
  soft_tiles.config = config;
  std::memset(soft_tiles.tiles, 0, sizeof(soft_tiles.tiles));
}

inline void ReleaseTiles() { SetTiles({}); }

template <int kTile>
void ZeroTile() {
  std::memset(soft_tiles.tiles[kTile], 0, sizeof(soft_tiles.tiles[kTile]));
}

template <int kTile>
void LoadTile(const void* base, int64_t stride) {
  const auto* from = static_cast<const std::byte*>(base);
  ZeroTile<kTile>();
  for (int row = 0; row < soft_tiles.config.rows[kTile]; ++row)
    std::memcpy(soft_tiles.tiles[kTile][row], from + row * stride,
                soft_tiles.config.column_bytes[kTile]);
}

template <int kTile>
void StoreTile(void* base, int64_t stride) {
  auto* to = static_cast<std::byte*>(base);
  for (int row = 0; row < soft_tiles.config.rows[kTile]; ++row)
    std::memcpy(to + row * stride, soft_tiles.tiles[kTile][row],
                soft_tiles.config.column_bytes[kTile]);
}

// Calls `add` with each sum of a tile and the words of a row of `kA` and of a column of `kB` that
// meet in it.
template <int kSums, int kA, int kB, typename Sum, typename Add>
void ForWords(Add add) {
  const TileConfig& config = soft_tiles.config;
  Require(config.rows[kSums] == config.rows[kA]);
  Require(config.column_bytes[kSums] == config.column_bytes[kB]);
  Require(config.column_bytes[kA] / 4 == config.rows[kB]);
  for (int row = 0; row < config.rows[kSums]; ++row) {
    Sum sums[16];
    std::memcpy(sums, soft_tiles.tiles[kSums][row], sizeof(sums));
    for (int word = 0; word < config.column_bytes[kA] / 4; ++word) {
      for (int column = 0; column < config.column_bytes[kSums] / 4; ++column) {
        add(sums[column], soft_tiles.tiles[kA][row] + 4 * word,
            soft_tiles.tiles[kB][word] + 4 * column);
      }
    }
    std::memcpy(soft_tiles.tiles[kSums][row], sums, sizeof(sums));
  }
}

template <int kSums, int kCodes, int kX>
void MulByteTiles() {
  ForWords<kSums, kCodes, kX, int32_t>([](int32_t& sum, const std::byte* a, const std::byte* b) {
    for (int i = 0; i < 4; ++i)
      sum += std::to_integer<uint8_t>(a[i]) * static_cast<int8_t>(std::to_integer<uint8_t>(b[i]));
  });
}

template <int kSums, int kWeights, int kX>
void MulBf16Tiles() {
  ForWords<kSums, kWeights, kX, float>([](float& sum, const std::byte* a, const std::byte* b) {
    const auto half_at = [](const std::byte* bytes) {
      uint16_t half;
      std::memcpy(&half, bytes, sizeof(half));
      const uint32_t word = uint32_t{half} << 16;
      float value;
      std::memcpy(&value, &word, sizeof(value));
      return value;
    };
    for (int i = 0; i < 4; i += 2) sum += half_at(a + i) * half_at(b + i);
  });
}

#else

inline void SetTiles(const TileConfig& config) {
  asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
}

inline void ReleaseTiles() { _tile_release(); }

// Tile registers by number. The intrinsics of GCC 12 lack the "memory" clobber, so stores could
// sink below a tile load.
template <int kTile>
inline void LoadTile(const void* base, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(base), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
inline void StoreTile(void* base, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(base), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
inline void ZeroTile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}

// sums += codes x: 16 x 64 unsigned bytes times 64 x columns signed bytes.
template <int kSums, int kCodes, int kX>
inline void MulByteTiles() {
  asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kCodes), "i"(kX));
}

// sums += weights x, of bf16.
template <int kSums, int kWeights, int kX>
inline void MulBf16Tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kWeights), "i"(kX));
}

#endif

}  // namespace
}  // namespace spillway::kernels
