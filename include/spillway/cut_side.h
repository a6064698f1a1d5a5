// CutSide: where a prompt that is too long is cut. Plain values; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace spillway {

// Side of the prompt that is left out.
enum class CutSide : uint8_t { kLeft, kRight, kMiddle };

inline constexpr std::array<std::string_view, 3> kCutSideNames = {"left", "right", "middle"};

constexpr std::string_view CutSideName(CutSide side) {
  return kCutSideNames[static_cast<std::size_t>(side)];
}

constexpr std::optional<CutSide> CutSideNamed(std::string_view name) {
  for (const CutSide side : {CutSide::kLeft, CutSide::kRight, CutSide::kMiddle}) {
    if (CutSideName(side) == name) return side;
  }
  return std::nullopt;
}

}  // namespace spillway
