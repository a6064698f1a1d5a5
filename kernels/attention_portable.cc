#include "kernels/attention_simd.h"

namespace spillway::kernels {

const AttentionFunctions kAttentionPortable = {StoreKvSimd, AttendSimd};

}  // namespace spillway::kernels
