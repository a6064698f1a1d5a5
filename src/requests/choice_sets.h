// ChoiceSets: the sets of choices that lines name. Neighbouring lines with the same choices share
// one. Thread rule: any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/sampling/choice_set.h"

namespace spillway {

class ChoiceSets {
 public:
  // The set of these texts, of one tokenizer and its ends, which outlive it.
  std::shared_ptr<const ChoiceSet> Of(const std::vector<std::string>& texts,
                                      const Tokenizer& tokenizer, const std::vector<TokenId>& ends);

 private:
  std::mutex mutex_;
  std::shared_ptr<const ChoiceSet> last_;
};

}  // namespace spillway
