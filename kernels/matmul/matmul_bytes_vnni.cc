// Matmul of quantised weights with x of one byte (RoundsToBytes), with AVX-512 VNNI.
#include "kernels/matmul/matmul_vnni_panel.h"

namespace spillway::kernels {

void PackVnniBytes(const PackTask& task) { Pack<CodedX::kOneByte>(task); }
void MatmulTileVnniBytes(const MatmulTile& tile) { MulTileOf<CodedX::kOneByte>(tile); }

}  // namespace spillway::kernels
