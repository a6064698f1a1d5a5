// TraceRing: a fixed number of events between those who report them and the one who writes them.
// Full, it drops and counts; nobody ever waits. Thread rule: Push and num_dropped by any thread,
// Pop by one. Allocates in the constructor only.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/report/trace_event.h"

namespace spillway {

class TraceRing {
 public:
  // Requires: capacity > 0.
  explicit TraceRing(std::size_t capacity);

  void Push(const TraceEvent& event) noexcept;

  // The oldest event; nullopt when there is none.
  std::optional<TraceEvent> Pop() noexcept;

  int64_t num_dropped() const { return num_dropped_.load(std::memory_order_relaxed); }

 private:
  // Place n of the ring is free for event e (e % capacity == n) when turn is e, and holds it when
  // turn is e + 1 (D. Vyukov's bounded queue).
  struct Place {
    std::atomic<uint64_t> turn;
    TraceEvent event;
  };
  Place& At(uint64_t number) { return places_[number % places_.size()]; }

  std::vector<Place> places_;
  std::atomic<uint64_t> pushed_ = 0;
  uint64_t popped_ = 0;
  std::atomic<int64_t> num_dropped_ = 0;
};

}  // namespace spillway
