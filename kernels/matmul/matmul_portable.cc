#include "kernels/matmul/matmul_simd.h"

namespace spillway::kernels {

void MatmulTilePortable(const MatmulTile& tile) { MatmulTileSimd(tile); }

}  // namespace spillway::kernels
