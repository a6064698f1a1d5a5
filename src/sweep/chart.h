// Charts as inline SVG: values in, one <svg> element out. Colours are the page's: classes s0 to s5
// for series, with f0 to f2 for how they are filled, and CSS variables for ink, so that one drawing
// fits light and dark backgrounds.
// Pure functions of values; any thread.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

inline constexpr std::size_t kNumSeriesColors = 6;
inline constexpr std::size_t kNumSeriesFills = 3;  // full, pale, and nearly empty

// One horizontal bar. Neighbours with the same label stand together under it.
struct Bar {
  std::string label;
  std::size_t series = 0;
  std::optional<double> value;  // nullopt: `text` stands in the bar's place, and says why
  std::string text;             // at its end
  std::string hover;
};

struct BarChart {
  std::string title;   // for readers that do not see the drawing
  std::string x_axis;  // with its unit
  std::vector<std::string> series;
  std::vector<Bar> bars;
  std::optional<double> mark;  // a vertical line to compare with
};

enum class DotShape { kCircle, kSquare, kTriangle, kDiamond, kDown };

struct Dot {
  double x = 0.0;
  double y = 0.0;
  std::size_t series = 0;
  DotShape shape = DotShape::kCircle;
  std::string hover;
};

// A straight line on the logarithmic axes.
struct ChartLine {
  std::array<double, 2> from{};
  std::array<double, 2> to{};
  std::string label;  // along it
  bool dashed = false;
};

// Both axes logarithmic.
struct XyChart {
  std::string id;  // of this chart among those of a page
  std::string title;
  std::string x_axis;
  std::string y_axis;
  std::vector<std::string> series;
  std::vector<std::string> shapes;  // names, of DotShape's first ones; empty: shapes mean nothing
  std::vector<Dot> dots;
  std::vector<ChartLine> lines;
  bool same_range = false;  // of both axes: what is equal lies on the diagonal
};

// Requires: values of an XyChart are positive, and there are some; each series has its name.
std::string DrawBars(const BarChart& chart);
std::string DrawXy(const XyChart& chart);

// Text for HTML and SVG, attributes included.
std::string EscapeHtml(std::string_view text);

// 3 digits, or all before the point: "0.0123", "8.5", "12.7", "1234".
std::string ShortNumber(double value);

}  // namespace spillway
