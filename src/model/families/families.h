// The families, one file each. A new one is declared here and listed in families.cc.
#pragma once

#include "src/model/family.h"

namespace spillway {

extern const Family kGpt2;
extern const Family kLlama;
extern const Family kOpt;

}  // namespace spillway
