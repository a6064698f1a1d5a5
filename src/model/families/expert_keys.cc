#include "src/model/families/expert_keys.h"

#include <fmt/format.h>

namespace spillway {
std::vector<std::string_view> ExpertTrainingKeys() {
  return {"output_router_logits", "router_aux_loss_coef", "router_jitter_noise"};
}

ExpertShape ReadExpertCounts(const JsonNode& config, std::string_view key, int64_t num_layers) {
  if (!config.FindSet(key)) key = "num_local_experts";  // transformers 5 writes one for the other
  ExpertShape experts;
  experts.num = config.Member(key).Integer(kExpertRange);
  experts.top_k = config.Member("num_experts_per_tok").Integer(kExpertRange);
  if (experts.top_k > experts.num) {
    config.Refuse(fmt::format("\"num_experts_per_tok\" is {}, more than \"{}\", which is {}",
                              experts.top_k, key, experts.num));
  }
  if (experts.num * num_layers > kMostExperts) {
    config.Refuse(
        fmt::format("\"{}\" is {} in each of {} layers, {} experts in all, and at most {} "
                    "are taken",
                    key, experts.num, num_layers, experts.num * num_layers, kMostExperts));
  }
  return experts;
}

}  // namespace spillway
