#include <algorithm>

#include "kernels/convert/convert_isa.h"
#include "kernels/rows/embedding.h"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

const std::byte* TableRow(const EmbeddingArgs& args, int32_t id) {
  const int64_t row = args.first_row + id;
  const auto piece = std::ranges::upper_bound(args.pieces, row, {}, &EmbeddingPiece::row_end);
  SPILLWAY_CHECK(piece != args.pieces.end() && row >= piece->row_begin);
  return static_cast<const std::byte*>(piece->rows) +
         (row - piece->row_begin) * RowBytes(args.dtype, args.cols);
}

}  // namespace

void EmbeddingLookup(const EmbeddingArgs& args) {
  float* y = args.y;
  for (const int32_t id : args.ids) {
    const std::byte* row = TableRow(args, id);
    if (IsQuantised(args.dtype)) {
      BestConvert().dequantise(row, args.dtype, y, args.cols);
    } else {
      BestConvert().convert({row, args.dtype, y, DType::kF32, args.cols});
    }
    if (args.scale != 1.0F) BestConvert().scale(y, args.cols, args.scale);
    y += args.y_stride;
  }
}

void EmbeddingAdd(const EmbeddingArgs& args) {
  SPILLWAY_CHECK(!IsQuantised(args.dtype) && args.scale == 1.0F);
  float* y = args.y;
  for (const int32_t id : args.ids) {
    BestConvert().add_to_float(TableRow(args, id), args.dtype, y, args.cols);
    y += args.y_stride;
  }
}

}  // namespace spillway::kernels
