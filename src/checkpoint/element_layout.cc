#include "src/checkpoint/element_layout.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace spillway {
namespace {

constexpr int64_t kSpanBytes = 64 << 10;  // of the file, read to pick elements from

// Elements at equal distances in the file, and where they go in memory, in elements.
struct Run {
  int64_t from;
  int64_t stride;
  int64_t count;
  std::byte* to;
  int64_t to_step;
};

void Fill(const Run& run, int64_t width, const std::byte* source, int64_t source_stride) {
  for (int64_t at = 0; at < run.count; ++at) {
    std::memcpy(run.to + at * run.to_step * width, source + at * source_stride * width,
                static_cast<std::size_t>(width));
  }
}

void ReadRun(const Run& run, int64_t width, const ByteReader& read) {
  if (run.stride == 1 && run.to_step == 1)
    return read(run.from * width, {run.to, static_cast<std::size_t>(run.count * width)});
  // One read holds so many of them.
  const int64_t most = run.stride == 0 ? run.count : 1 + (kSpanBytes / width - 1) / run.stride;
  std::vector<std::byte> span;
  for (int64_t at = 0; at < run.count; at += most) {
    Run part = run;
    part.count = std::min(most, run.count - at);
    part.to += at * run.to_step * width;
    span.resize(static_cast<std::size_t>(((part.count - 1) * run.stride + 1) * width));
    read((run.from + at * run.stride) * width, span);
    Fill(part, width, span.data(), run.stride);
  }
}

}  // namespace

void ReadElements(const ElementLayout& layout, int64_t first, std::span<std::byte> out,
                  const ByteReader& read) {
  const int64_t width = layout.element_bytes;
  int64_t left = static_cast<int64_t>(out.size()) / width;
  std::byte* to = out.data();
  while (left > 0) {
    const int64_t col = first % layout.cols;
    const int64_t from = first / layout.cols * layout.row_stride + col * layout.col_stride;
    int64_t count = std::min(left, layout.cols - col);
    // Whole rows of which the columns lie closer together are read column by column.
    if (count == layout.cols && layout.row_stride < layout.col_stride) {
      const int64_t rows = left / layout.cols;
      for (int64_t at = 0; at < layout.cols; ++at) {
        ReadRun(
            {from + at * layout.col_stride, layout.row_stride, rows, to + at * width, layout.cols},
            width, read);
      }
      count = rows * layout.cols;
    } else {
      ReadRun({from, layout.col_stride, count, to, 1}, width, read);
    }
    first += count;
    left -= count;
    to += count * width;
  }
}

bool NarrowFp64(std::span<const std::byte> in, std::span<std::byte> out) {
  bool fits = true;
  for (std::size_t at = 0; at < in.size() / sizeof(double); ++at) {
    double wide = 0.0;
    std::memcpy(&wide, in.data() + at * sizeof(double), sizeof(double));
    const auto narrow = static_cast<float>(wide);
    fits = fits && (std::isfinite(narrow) || !std::isfinite(wide));
    std::memcpy(out.data() + at * sizeof(float), &narrow, sizeof(float));
  }
  return fits;
}

}  // namespace spillway
