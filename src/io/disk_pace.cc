#include "src/io/disk_pace.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "spillway/error.h"
#include "src/base/clock.h"
#include "src/base/hash.h"
#include "src/base/stop_signal.h"

namespace spillway {
namespace {

constexpr std::chrono::microseconds kPoll{100};  // others are under way meanwhile

}  // namespace

DiskPace::DiskPace(DiskQueue& queue, const DiskFile& file, std::span<std::byte> memory,
                   int64_t request_bytes)
    : queue_(queue),
      file_(file),
      memory_(memory),
      request_bytes_(request_bytes),
      num_slots_(static_cast<int64_t>(memory.size()) / request_bytes),
      tickets_(static_cast<std::size_t>(std::min(num_slots_, kBytesInFlight / request_bytes + 1))) {
  SPILLWAY_CHECK(num_slots_ > 0 && file.size() >= request_bytes);
}

double DiskPace::Move(std::span<const DiskOp> ops, double seconds) {
  const double begin_s = NowSeconds();
  const int64_t first = next_request_;
  const auto num_tickets = std::ssize(tickets_);
  try {
    for (; NowSeconds() - begin_s < seconds; ++next_request_) {
      if (next_request_ - first >= num_tickets) Finish(next_request_ - num_tickets);
      Begin(ops[static_cast<std::size_t>(next_request_) % ops.size()], next_request_);
    }
    for (int64_t last = std::max(first, next_request_ - num_tickets); last < next_request_; ++last)
      Finish(last);
  } catch (...) {
    Drain();
    throw;
  }
  return static_cast<double>((next_request_ - first) * request_bytes_) / (NowSeconds() - begin_s);
}

void DiskPace::Begin(DiskOp op, int64_t request) {
  const int64_t num_requests = file_.size() / request_bytes_;
  const DiskRequest whole = {op, &file_, request % num_requests * request_bytes_,
                             MemoryOf(request)};
  TicketOf(request) = queue_.Submit({&whole, 1});
}

// A disk that never answers must not hold up a stop.
void DiskPace::Finish(int64_t request) {
  ThrowIfStopRequested();
  while (!queue_.Done(TicketOf(request))) {
    std::this_thread::sleep_for(kPoll);
    ThrowIfStopRequested();
  }
  queue_.Wait(TicketOf(request));
  checked_ ^= BlockHash(MemoryOf(request));
}

// Waits for what is under way, which refers to the memory.
void DiskPace::Drain() noexcept {
  for (const DiskTicket& ticket : tickets_) {
    try {
      queue_.Wait(ticket);
    } catch (const Error&) {  // the first was told
    }
  }
}

DiskTicket& DiskPace::TicketOf(int64_t request) {
  return tickets_[static_cast<std::size_t>(request) % tickets_.size()];
}

std::span<std::byte> DiskPace::MemoryOf(int64_t request) const {
  return memory_.subspan(static_cast<std::size_t>(request % num_slots_ * request_bytes_),
                         static_cast<std::size_t>(request_bytes_));
}

}  // namespace spillway
