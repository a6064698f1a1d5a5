#include "kernels/attention_simd.h"

namespace spillway::kernels {

const AttentionFunctions kAttentionAvx2 = {StoreKvSimd, AttendSimd};

}  // namespace spillway::kernels
