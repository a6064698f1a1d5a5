#include "kernels/matmul/matmul_simd.h"

namespace spillway::kernels {

void MatmulTileAvx2(const MatmulTile& tile) { MatmulTileSimd(tile); }

}  // namespace spillway::kernels
