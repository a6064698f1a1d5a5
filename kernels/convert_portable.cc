#include "kernels/convert_simd.h"
#include "kernels/quantise_simd.h"

namespace spillway::kernels {

const ConvertFunctions kConvertPortable = {ConvertSimd, FindNonFiniteSimd, AddToFloatSimd,
                                           FillRunSimd, QuantiseSimd,      DequantiseSimd};

}  // namespace spillway::kernels
