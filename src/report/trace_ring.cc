#include "src/report/trace_ring.h"

namespace spillway {

TraceRing::TraceRing(std::size_t capacity) : places_(capacity) {
  for (std::size_t n = 0; n < capacity; ++n) places_[n].turn = n;
}

void TraceRing::Push(const TraceEvent& event) noexcept {
  uint64_t number = pushed_.load(std::memory_order_relaxed);
  while (true) {
    Place& place = At(number);
    const uint64_t turn = place.turn.load(std::memory_order_acquire);
    if (turn < number) {
      num_dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    if (turn > number) {  // another thread was faster
      number = pushed_.load(std::memory_order_relaxed);
    } else if (pushed_.compare_exchange_weak(number, number + 1, std::memory_order_relaxed)) {
      place.event = event;
      place.turn.store(number + 1, std::memory_order_release);
      return;
    }
  }
}

std::optional<TraceEvent> TraceRing::Pop() noexcept {
  Place& place = At(popped_);
  if (place.turn.load(std::memory_order_acquire) != popped_ + 1) return std::nullopt;
  const TraceEvent event = place.event;
  place.turn.store(popped_ + places_.size(), std::memory_order_release);
  ++popped_;
  return event;
}

}  // namespace spillway
