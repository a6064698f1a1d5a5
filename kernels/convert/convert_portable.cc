#include "kernels/convert/convert_simd.h"
#include "kernels/convert/quantise_simd.h"

namespace spillway::kernels {

const ConvertFunctions kConvertPortable = {ConvertSimd,   FindNonFiniteSimd, AddToFloatSimd,
                                           ScaleSimd,     FillRunSimd,       QuantiseSimd,
                                           DequantiseSimd};

}  // namespace spillway::kernels
