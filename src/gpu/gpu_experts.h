// GpuExperts: the tokens that wait for experts of a layer on a GPU. Their choices are made by the
// GPU and sorted by the host, so they cross to it once a decoder layer, and the sorted lists cross
// back, by kernels (kernels/rows/fetch_host.h).
// Thread rule: one thread. Allocates nothing once it is made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "spillway/plan.h"
#include "src/compute/expert_lists.h"
#include "src/cuda/stream.h"
#include "src/gpu/exchange.h"

namespace spillway {

class GpuExperts {
 public:
  // The memory of ExpertExchange.
  struct Memory {
    std::byte* lists = nullptr;  // GPU
    std::array<std::byte*, kExpertTurns> host_lists{};
    float* host_choices = nullptr;
    std::ptrdiff_t to_gpu = 0;  // from an address of the host's memory to the GPU's for it
  };

  GpuExperts(const Plan& plan, const Memory& memory);

  // Adds a token by its states in GPU memory. Requires: at most MostGathered since Clear.
  void Add(float* states);
  std::span<const GatheredToken> tokens() const { return tokens_; }
  void Clear() { tokens_.clear(); }

  // Sends the choices of all tokens to the host, which may read them (tokens()) when it has waited
  // for the stream, and after Clear and the same tokens in the same order again, until the next
  // call. Throws: Error kGpu.
  void FetchChoices(Stream& stream);

  // Experts that any token chose, [their number]: 1 or 0. Requires: the choices may be read.
  // Lifetime: until the next call.
  std::span<const uint8_t> Chosen();

  // Lists in GPU memory with these contents, for what is enqueued in the stream until the next call
  // of FetchChoices or Put. Throws: Error kGpu.
  ExpertTokens Put(const ExpertTokens& tokens, Stream& stream);

 private:
  // Waits until lists that crossed from the next turn's memory are in the GPU's.
  std::byte* BeginTurn();
  void Send(int64_t bytes, Stream& stream);

  int64_t choice_column_;
  int64_t choice_width_;
  int64_t top_k_;
  Memory memory_;
  std::array<Event, kExpertTurns> sent_;
  std::size_t turn_ = 0;
  std::vector<GatheredToken> tokens_;
  std::vector<uint8_t> chosen_;
};

}  // namespace spillway
