// Matmul of quantised weights with x of two bytes, with AVX-512 VNNI.
#include "kernels/matmul/matmul_vnni_panel.h"

namespace spillway::kernels {

void PackVnni(const PackTask& task) { Pack<CodedX::kTwoBytes>(task); }
void MatmulTileVnni(const MatmulTile& tile) { MulTileOf<CodedX::kTwoBytes>(tile); }

}  // namespace spillway::kernels
