#include "src/requests/choice_sets.h"

namespace spillway {

std::shared_ptr<const ChoiceSet> ChoiceSets::Of(const std::vector<std::string>& texts,
                                                const Tokenizer& tokenizer,
                                                const std::vector<TokenId>& ends) {
  const std::scoped_lock lock(mutex_);
  if (last_ == nullptr || last_->texts() != texts)
    last_ = std::make_shared<const ChoiceSet>(texts, tokenizer, ends);
  return last_;
}

}  // namespace spillway
