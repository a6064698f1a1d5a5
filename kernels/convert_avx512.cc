#include "kernels/convert_simd.h"

namespace spillway::kernels {

const ConvertFunctions kConvertAvx512 = {ConvertSimd, FindNonFiniteSimd, AddToFloatSimd,
                                         FillRunSimd};

}  // namespace spillway::kernels
