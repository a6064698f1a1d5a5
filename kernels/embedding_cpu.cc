#include "kernels/convert_isa.h"
#include "kernels/embedding.h"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

const std::byte* TableRow(const EmbeddingArgs& args, int32_t id) {
  SPILLWAY_CHECK(id >= 0 && id < args.table_rows);
  return static_cast<const std::byte*>(args.table) + id * args.cols * DTypeBytes(args.dtype);
}

}  // namespace

void EmbeddingLookup(const EmbeddingArgs& args) {
  float* y = args.y;
  for (const int32_t id : args.ids) {
    BestConvert().convert({TableRow(args, id), args.dtype, y, DType::kF32, args.cols});
    y += args.y_stride;
  }
}

void EmbeddingAdd(const EmbeddingArgs& args) {
  float* y = args.y;
  for (const int32_t id : args.ids) {
    BestConvert().add_to_float(TableRow(args, id), args.dtype, y, args.cols);
    y += args.y_stride;
  }
}

}  // namespace spillway::kernels
