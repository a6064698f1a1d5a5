#include "src/model/families/families.h"

#include <algorithm>
#include <array>

namespace spillway {
namespace {

constexpr std::array kFamilies = {
    &kExaone4, &kGemma,   &kGemma2,   &kGemma3,  &kGlm,        &kGlm4,
    &kGpt2,    &kGptNeox, &kGptOss,   &kGranite, &kGraniteMoe, &kGraniteMoeHybrid,
    &kLlama,   &kMistral, &kMixtral,  &kOlmo2,   &kOlmo3,      &kOpt,
    &kPhi3,    &kQwen2,   &kQwen2Moe, &kQwen3,   &kQwen3Moe,   &kSeedOss,
    &kSmolLm3};

}  // namespace

std::span<const Family* const> Families() { return kFamilies; }

const Family* FindFamily(std::string_view model_type) {
  const auto found = std::ranges::find(kFamilies, model_type, &Family::model_type);
  return found == kFamilies.end() ? nullptr : *found;
}

}  // namespace spillway
