// The families, one file each. A new one is declared here and listed in families.cc.
#pragma once

#include "src/model/family.h"

namespace spillway {

extern const Family kExaone4;
extern const Family kGemma;
extern const Family kGemma2;
extern const Family kGemma3;
extern const Family kGlm;
extern const Family kGlm4;
extern const Family kGpt2;
extern const Family kGptNeox;
extern const Family kGptOss;
extern const Family kGranite;
extern const Family kGraniteMoe;
extern const Family kGraniteMoeHybrid;
extern const Family kLlama;
extern const Family kMistral;
extern const Family kMixtral;
extern const Family kOlmo2;
extern const Family kOlmo3;
extern const Family kOpt;
extern const Family kPhi3;
extern const Family kQwen2;
extern const Family kQwen2Moe;
extern const Family kQwen3;
extern const Family kQwen3Moe;
extern const Family kSeedOss;
extern const Family kSmolLm3;

}  // namespace spillway
