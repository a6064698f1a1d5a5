#include "src/requests/choice_sets.h"

namespace spillway {

std::shared_ptr<const ChoiceSet> ChoiceSets::Of(const std::vector<std::string>& texts,
                                                const TokenIndex& index,
                                                const std::vector<TokenId>& ends) {
  const std::scoped_lock lock(mutex_);
  if (last_ == nullptr || last_->texts() != texts)
    last_ = std::make_shared<const ChoiceSet>(texts, index, ends);
  return last_;
}

}  // namespace spillway
