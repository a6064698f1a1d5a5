#include "kernels/convert.h"
