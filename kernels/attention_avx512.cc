#include "kernels/attention_simd.h"

namespace spillway::kernels {

const AttentionFunctions kAttentionAvx512 = {StoreKvSimd, AttendSimd};

}  // namespace spillway::kernels
