#include "src/gpu/gpu_experts.h"

#include <algorithm>
#include <cstring>

#include "kernels/rows/fetch_host.h"
#include "kernels/rows/gather_rows.h"
#include "spillway/expert_gather.h"
#include "src/gpu/table_writer.h"

namespace spillway {

GpuExperts::GpuExperts(const Plan& plan, const Memory& memory)
    : choice_column_(StateColumn(plan.shape, Buf::kChoice)),
      choice_width_(WidthOf(plan.shape, Buf::kChoice)),
      top_k_(plan.shape.experts.top_k),
      memory_(memory),
      chosen_(static_cast<std::size_t>(plan.shape.experts.num)) {
  tokens_.reserve(static_cast<std::size_t>(MostGathered(plan)));
}

void GpuExperts::Add(float* states) {
  const int64_t at = std::ssize(tokens_) * choice_width_;
  tokens_.push_back({states, memory_.host_choices + at});
}

void GpuExperts::FetchChoices(Stream& stream) {
  auto* states = reinterpret_cast<const float**>(BeginTurn());
  for (std::size_t at = 0; at < tokens_.size(); ++at) states[at] = tokens_[at].states;
  Send(static_cast<int64_t>(tokens_.size() * sizeof(float*)), stream);
  const auto* there = reinterpret_cast<const float* const*>(memory_.lists);
  auto* y =
      reinterpret_cast<float*>(reinterpret_cast<std::byte*>(memory_.host_choices) + memory_.to_gpu);
  kernels::GatherRowsAsync(
      {{there, tokens_.size()}, choice_width_, y, choice_width_, choice_column_}, stream);
}

std::span<const uint8_t> GpuExperts::Chosen() {
  std::ranges::fill(chosen_, uint8_t{0});
  for (const GatheredToken& token : tokens_) {
    for (int64_t slot = 0; slot < top_k_; ++slot)
      chosen_[static_cast<std::size_t>(token.choice[slot])] = 1;
  }
  return chosen_;
}

ExpertTokens GpuExperts::Put(const ExpertTokens& tokens, Stream& stream) {
  std::byte* to = BeginTurn();
  const auto weights_at =
      static_cast<std::size_t>(TableBytes(static_cast<int64_t>(tokens.states.size_bytes())));
  if (tokens.size() > 0) {
    std::memcpy(to, tokens.states.data(), tokens.states.size_bytes());
    std::memcpy(to + weights_at, tokens.weights.data(), tokens.weights.size_bytes());
  }
  Send(static_cast<int64_t>(weights_at + tokens.weights.size_bytes()), stream);
  return {{reinterpret_cast<float* const*>(memory_.lists), tokens.size()},
          {reinterpret_cast<const float*>(memory_.lists + weights_at), tokens.size()}};
}

std::byte* GpuExperts::BeginTurn() {
  turn_ = (turn_ + 1) % kExpertTurns;
  sent_[turn_].Wait();
  return memory_.host_lists[turn_];
}

void GpuExperts::Send(int64_t bytes, Stream& stream) {
  if (bytes > 0) {
    kernels::FetchHostAsync({memory_.host_lists[turn_] + memory_.to_gpu, memory_.lists, bytes},
                            stream);
  }
  stream.Record(sent_[turn_]);
}

}  // namespace spillway
