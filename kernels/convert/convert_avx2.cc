#include "kernels/convert/convert_simd.h"
#include "kernels/convert/quantise_simd.h"

namespace spillway::kernels {

const ConvertFunctions kConvertAvx2 = {ConvertSimd, FindNonFiniteSimd, AddToFloatSimd, ScaleSimd,
                                       FillRunSimd, QuantiseSimd,      DequantiseSimd};

}  // namespace spillway::kernels
