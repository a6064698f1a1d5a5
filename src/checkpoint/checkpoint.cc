#include "src/checkpoint/checkpoint.h"
