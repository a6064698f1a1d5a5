#include "kernels/convert_simd.h"

namespace spillway::kernels {

const ConvertFunctions kConvertPortable = {ConvertSimd, FindNonFiniteSimd, AddToFloatSimd,
                                           FillRunSimd};

}  // namespace spillway::kernels
