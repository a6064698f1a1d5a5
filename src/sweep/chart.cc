#include "src/sweep/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace spillway {
namespace {

constexpr double kWidth = 920.0;
constexpr double kLetterWidth = 7.0;  // of 12 px text in a broad font
constexpr std::size_t kMaxLabel = 52;

struct Box {
  double left = 0.0;
  double top = 0.0;
  double width = 0.0;
  double height = 0.0;

  double right() const { return left + width; }
  double bottom() const { return top + height; }
};

// Cut in the middle of nothing: whole UTF-8 letters, the end given up.
std::string Cut(const std::string& text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  std::size_t size = max_bytes;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  return text.substr(0, size) + "…";
}

std::string Text(double x, double y, std::string_view classes, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>\n", x, y, classes,
                     EscapeHtml(text));
}

std::string LineAt(double x1, double y1, double x2, double y2, std::string_view classes) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2,
      y2, classes);
}

std::string Hover(const std::string& text) {
  return text.empty() ? "" : fmt::format("<title>{}</title>", EscapeHtml(text));
}

std::string Svg(double height, const std::string& title, const std::string& content) {
  return fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n", kWidth,
      height, EscapeHtml(title), content);
}

// All colours filled first, then all of them pale.
std::string SeriesClasses(std::size_t series) {
  return fmt::format("s{} f{}", series % kNumSeriesColors,
                     series / kNumSeriesColors % kNumSeriesFills);
}

std::string Mark(const Dot& dot, double x, double y) {
  const std::string attributes =
      fmt::format("class=\"dot {}\">{}", SeriesClasses(dot.series), Hover(dot.hover));
  switch (dot.shape) {
    case DotShape::kCircle:
      return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5.5\" {}</circle>\n", x, y,
                         attributes);
    case DotShape::kSquare:
      return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"10\" height=\"10\" {}</rect>\n",
                         x - 5, y - 5, attributes);
    case DotShape::kTriangle:
      return fmt::format("<path d=\"M{:.1f} {:.1f}l6.5 11h-13z\" {}</path>\n", x, y - 6.5,
                         attributes);
    case DotShape::kDiamond:
      return fmt::format("<path d=\"M{:.1f} {:.1f}l6.5 6.5l-6.5 6.5l-6.5 -6.5z\" {}</path>\n", x,
                         y - 6.5, attributes);
    case DotShape::kDown:
      break;
  }
  return fmt::format("<path d=\"M{:.1f} {:.1f}l-6.5 -11h13z\" {}</path>\n", x, y + 6.5, attributes);
}

// The names of the series that are drawn; the others' are empty, for a colour is known by its
// place.
template <typename T>
std::vector<std::string> NamesOfDrawn(const std::vector<std::string>& series,
                                      const std::vector<T>& drawn) {
  std::vector<std::string> names(series.size());
  for (const T& one : drawn) names[one.series] = series[one.series];
  return names;
}

// Names in one row; those that do not fit go to the next. Adds to `y` what the rows take.
std::string Legend(const std::vector<std::string>& series, const std::vector<std::string>& shapes,
                   double left, double& y) {
  std::string text;
  double x = left;
  const auto entry = [&](const std::string& name, const Dot& dot, bool outlined) {
    const double width = 36.0 + kLetterWidth * static_cast<double>(name.size());
    if (x + width > kWidth && x > left) {
      x = left;
      y += 20.0;
    }
    text +=
        outlined ? "<g class=\"outlined\">" + Mark(dot, x + 6, y) + "</g>\n" : Mark(dot, x + 6, y);
    text += Text(x + 17, y + 4, "ink", name);
    x += width;
  };
  for (std::size_t at = 0; at < series.size(); ++at) {
    if (!series[at].empty()) entry(series[at], {0.0, 0.0, at, DotShape::kSquare, ""}, false);
  }
  for (std::size_t at = 0; at < shapes.size(); ++at) {
    entry(shapes[at], {0.0, 0.0, 0, static_cast<DotShape>(at), ""}, true);
  }
  y += 24.0;
  return text;
}

// 1, 2 or 5 times a power of ten, so that an axis to `most` has four to nine of them.
double LinearStep(double most) {
  const double power = std::pow(10.0, std::floor(std::log10(most)));
  for (const double step : {0.1, 0.2, 0.5, 1.0}) {
    if (most / (step * power) <= 9.0) return step * power;
  }
  return 2.0 * power;
}

struct LogAxis {
  double low = 1.0;
  double high = 10.0;

  double At(double value) const {
    return (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
  }
  double decades() const { return std::log10(high / low); }
};

// Ends at a power of ten, or at 2 or 5 times one; with room around the values.
double RoundOut(double value, bool up) {
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  constexpr std::array kSteps = {1.0, 2.0, 5.0, 10.0};
  if (up) {
    for (const double step : kSteps) {
      if (step * power >= value) return step * power;
    }
  }
  double best = power;
  for (const double step : kSteps) {
    if (step * power <= value) best = step * power;
  }
  return best;
}

LogAxis AxisFor(const std::vector<double>& values) {
  const auto [low, high] = std::ranges::minmax(values);
  constexpr double kRoom = 1.25;
  LogAxis axis{RoundOut(low / kRoom, false), RoundOut(high * kRoom, true)};
  if (axis.decades() < 0.7)
    axis = {RoundOut(axis.low / 1.5, false), RoundOut(axis.high * 1.5, true)};
  return axis;
}

// Powers of ten, and 2 and 5 times them where there are few.
std::vector<double> LogTicks(const LogAxis& axis) {
  std::vector<double> ticks;
  const int first = static_cast<int>(std::floor(std::log10(axis.low)));
  const int last = static_cast<int>(std::ceil(std::log10(axis.high)));
  for (int power = first; power <= last; ++power) {
    for (const double step : {1.0, 2.0, 5.0}) {
      if (step != 1.0 && axis.decades() > 3.0) continue;
      const double tick = step * std::pow(10.0, power);
      if (tick >= axis.low * 0.999 && tick <= axis.high * 1.001) ticks.push_back(tick);
    }
  }
  return ticks;
}

// The plot area of an XyChart, and where values are in it.
struct XyFrame {
  Box box;
  LogAxis x;
  LogAxis y;

  double X(double value) const { return box.left + x.At(value) * box.width; }
  double Y(double value) const { return box.bottom() - y.At(value) * box.height; }
};

XyFrame FrameFor(const XyChart& chart, double top) {
  std::vector<double> xs;
  std::vector<double> ys;
  for (const Dot& dot : chart.dots) {
    xs.push_back(dot.x);
    ys.push_back(dot.y);
  }
  for (const ChartLine& line : chart.lines) {
    if (line.from[1] != line.to[1]) continue;  // a ceiling belongs into the picture
    ys.push_back(line.to[1]);
    xs.push_back(line.from[0]);
  }
  if (chart.same_range) {
    xs.insert(xs.end(), ys.begin(), ys.end());
    ys = xs;
  }
  return {{84.0, top, kWidth - 84.0 - 30.0, 400.0}, AxisFor(xs), AxisFor(ys)};
}

std::string Axes(const XyChart& chart, const XyFrame& frame) {
  const Box& box = frame.box;
  std::string text;
  for (const double tick : LogTicks(frame.x)) {
    text += LineAt(frame.X(tick), box.top, frame.X(tick), box.bottom(), "grid");
    text += Text(frame.X(tick), box.bottom() + 18, "soft middle", ShortNumber(tick));
  }
  for (const double tick : LogTicks(frame.y)) {
    text += LineAt(box.left, frame.Y(tick), box.right(), frame.Y(tick), "grid");
    text += Text(box.left - 8, frame.Y(tick) + 4, "soft end", ShortNumber(tick));
  }
  text += LineAt(box.left, box.bottom(), box.right(), box.bottom(), "axis");
  text += LineAt(box.left, box.top, box.left, box.bottom(), "axis");
  text += Text(box.left + box.width / 2, box.bottom() + 42, "ink middle", chart.x_axis);
  const double middle = box.top + box.height / 2;
  return text + fmt::format(
                    "<text x=\"18\" y=\"{0:.1f}\" class=\"ink middle\" "
                    "transform=\"rotate(-90 18 {0:.1f})\">{1}</text>\n",
                    middle, EscapeHtml(chart.y_axis));
}

// A line within the plot area, with its name along its upper left side.
std::string DrawLine(const ChartLine& line, const XyFrame& frame, const std::string& id) {
  const double x1 = frame.X(line.from[0]);
  const double y1 = frame.Y(line.from[1]);
  const double x2 = frame.X(line.to[0]);
  const double y2 = frame.Y(line.to[1]);
  std::string text = fmt::format("<g clip-path=\"url(#{})\">{}</g>\n", id,
                                 LineAt(x1, y1, x2, y2, line.dashed ? "roof dashed" : "roof"));
  if (line.label.empty()) return text;
  const double slope = (y2 - y1) / (x2 - x1);
  const double angle = std::atan(slope) * 180.0 / std::numbers::pi;
  const double length = kLetterWidth * static_cast<double>(line.label.size());
  // Where the line is well inside; a ceiling is named at its right end.
  double x = std::max(x1, frame.box.left) + 10.0;
  if (slope == 0.0) x = frame.box.right() - length;
  const double y_low = frame.box.bottom() - 12.0;
  if (slope != 0.0 && y1 + slope * (x - x1) > y_low) x = x1 + (y_low - y1) / slope;
  const double y = y1 + slope * (x - x1) - 7.0 * std::sqrt(1.0 + slope * slope);
  return text + fmt::format(
                    "<text x=\"{0:.1f}\" y=\"{1:.1f}\" class=\"soft\" "
                    "transform=\"rotate({2:.1f} {0:.1f} {1:.1f})\">{3}</text>\n",
                    x, y, angle, EscapeHtml(line.label));
}

// The plot area of a BarChart.
struct BarFrame {
  Box box;
  double most = 0.0;
  double step = 0.0;

  double X(double value) const { return box.left + value / most * box.width; }
};

constexpr double kBarHeight = 15.0;
constexpr double kBarGap = 3.0;
constexpr double kGroupGap = 11.0;

bool StartsGroup(const BarChart& chart, std::size_t at) {
  return at == 0 || chart.bars[at].label != chart.bars[at - 1].label;
}

BarFrame FrameFor(const BarChart& chart, double top) {
  double most = chart.mark.value_or(0.0);
  std::size_t label = 0;
  double height = 0.0;
  for (std::size_t at = 0; at < chart.bars.size(); ++at) {
    const Bar& bar = chart.bars[at];
    most = std::max(most, bar.value.value_or(0.0));
    label = std::max(label, std::min(bar.label.size(), kMaxLabel));
    height += kBarHeight + (StartsGroup(chart, at) ? kGroupGap : kBarGap);
  }
  if (most <= 0.0) most = 1.0;
  const double left = 16.0 + kLetterWidth * static_cast<double>(label);
  const double step = LinearStep(most);
  return {{left, top, kWidth - left - 80.0, height + kGroupGap},
          step * std::ceil(most / step * 0.999),
          step};
}

std::string Axes(const BarChart& chart, const BarFrame& frame) {
  const Box& box = frame.box;
  std::string text;
  for (int at = 0; at * frame.step <= frame.most * 1.001; ++at) {
    const double x = frame.X(at * frame.step);
    text += LineAt(x, box.top, x, box.bottom(), at == 0 ? "axis" : "grid");
    text += Text(x, box.bottom() + 18, "soft middle", ShortNumber(at * frame.step));
  }
  return text + Text(box.left + box.width / 2, box.bottom() + 42, "ink middle", chart.x_axis);
}

std::string DrawBar(const Bar& bar, const BarFrame& frame, double y) {
  const double text_y = y + kBarHeight - 3.5;
  if (!bar.value) {
    return fmt::format("<g>{}{}</g>\n", Hover(bar.hover),
                       Text(frame.box.left + 6, text_y, "soft",
                            Cut(bar.text, static_cast<std::size_t>(frame.box.width / 6.0))));
  }
  const double right = frame.X(*bar.value);
  return fmt::format(
             "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" rx=\"2\" "
             "class=\"{}\">{}</rect>\n",
             frame.box.left, y, std::max(1.0, right - frame.box.left), kBarHeight,
             SeriesClasses(bar.series), Hover(bar.hover)) +
         Text(right + 5, text_y, "ink", bar.text);
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string ShortNumber(double value) {
  if (std::abs(value) >= 99.5) return fmt::format("{:.0f}", value);
  return fmt::format("{:.3g}", value);
}

std::string DrawBars(const BarChart& chart) {
  double y = 14.0;
  std::string content = Legend(NamesOfDrawn(chart.series, chart.bars), {}, 8.0, y);
  const BarFrame frame = FrameFor(chart, y);
  content += Axes(chart, frame);
  if (chart.mark) {
    const double x = frame.X(*chart.mark);
    content += LineAt(x, frame.box.top, x, frame.box.bottom(), "roof dashed");
  }
  for (std::size_t at = 0; at < chart.bars.size(); ++at) {
    const bool starts = StartsGroup(chart, at);
    y += starts ? kGroupGap : kBarGap;
    if (starts)
      content += Text(frame.box.left - 8, y + kBarHeight - 3.5, "ink end",
                      Cut(chart.bars[at].label, kMaxLabel));
    content += DrawBar(chart.bars[at], frame, y);
    y += kBarHeight;
  }
  return Svg(frame.box.bottom() + 54.0, chart.title, content);
}

std::string DrawXy(const XyChart& chart) {
  double y = 14.0;
  std::string content = Legend(NamesOfDrawn(chart.series, chart.dots), chart.shapes, 8.0, y);
  const XyFrame frame = FrameFor(chart, y);
  const Box& box = frame.box;
  content += fmt::format(
      "<clipPath id=\"{}\"><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
      "height=\"{:.1f}\"/></clipPath>\n",
      chart.id, box.left, box.top, box.width, box.height);
  content += Axes(chart, frame);
  for (const ChartLine& line : chart.lines) content += DrawLine(line, frame, chart.id);
  for (const Dot& dot : chart.dots) content += Mark(dot, frame.X(dot.x), frame.Y(dot.y));
  return Svg(box.bottom() + 54.0, chart.title, content);
}

}  // namespace spillway
