#include "kernels/attention/attention_decode_simd.h"
#include "kernels/attention/attention_simd.h"

namespace spillway::kernels {

const AttentionFunctions kAttentionVnni = {StoreKvSimd, AttendSimd, DecodeSimd};

}  // namespace spillway::kernels
