#include "kernels/convert_simd.h"

namespace spillway::kernels {

const ConvertFunctions kConvertAvx2 = {ConvertSimd, FindNonFiniteSimd, AddToFloatSimd, FillRunSimd};

}  // namespace spillway::kernels
