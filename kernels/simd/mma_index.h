// Index arithmetic of mma.m16n8k16 as prefill attention uses it: the elements of a tile that a lane
// of a warp holds or addresses. constexpr, so that kernels and host tests run the same code: a test
// puts a warp together from PTX's definition of ldmatrix and mma. Pure functions; any thread.
#pragma once

namespace spillway::kernels {

struct TilePlace {
  int row = 0;
  int col = 0;
};

// A, 16 x 16: word 0..3 of a lane holds this element and the one right of it.
constexpr TilePlace FactorPlace(int lane, int word) {
  return {lane / 4 + word % 2 * 8, 2 * (lane % 4) + word / 2 * 8};
}

// C, 16 x 8: accumulator 0..3 of a lane.
constexpr TilePlace SumPlace(int lane, int i) {
  return {lane / 4 + i / 2 * 8, 2 * (lane % 4) + i % 2};
}

// The 16 bytes of a 16-key x 16-dimension tile of K that a lane addresses, so that words 0 and 1 of
// what it gets are the factors for keys 0..7, and words 2 and 3 those for keys 8..15.
constexpr TilePlace KeyAddress(int lane) { return {lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8}; }

// The 16 bytes of a tile of V that a lane addresses. V is transposed as it is loaded: words 0 and 1
// are the factors for dimensions 0..7.
constexpr TilePlace ValueAddress(int lane) { return {lane / 8 % 2 * 8 + lane % 8, lane / 16 * 8}; }

}  // namespace spillway::kernels
