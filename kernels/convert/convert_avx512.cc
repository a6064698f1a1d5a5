#include "kernels/convert/convert_simd.h"
#include "kernels/convert/quantise_simd.h"

namespace spillway::kernels {

const ConvertFunctions kConvertAvx512 = {ConvertSimd, FindNonFiniteSimd, AddToFloatSimd, ScaleSimd,
                                         FillRunSimd, QuantiseSimd,      DequantiseSimd};

}  // namespace spillway::kernels
