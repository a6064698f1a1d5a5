#include "src/execute/store_rate.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "spillway/error.h"
#include "spillway/tile.h"
#include "src/clock.h"
#include "src/io/block_hash.h"
#include "src/stop_signal.h"

namespace spillway {
namespace {

constexpr double kSeconds = 0.25;
constexpr int64_t kRequestBytes = int64_t{2} << 20;
constexpr int64_t kLeastRequestBytes = int64_t{256} << 10;  // of less, latency would be measured
constexpr int64_t kLeastSlots = 4;
constexpr std::chrono::microseconds kPoll{100};  // others are under way meanwhile

// One more request is handed in than is under way, as the run has a tile being checked. Memory is
// gone through in turn, all of it: into less of it reads would be faster than the run's.
class StoreReader {
 public:
  StoreReader(const Store& store, DiskQueue& queue, std::span<std::byte> memory,
              int64_t request_bytes)
      : store_(store),
        queue_(queue),
        memory_(memory),
        request_bytes_(request_bytes),
        num_slots_(static_cast<int64_t>(memory.size()) / request_bytes),
        num_tickets_(std::min(num_slots_, kBytesInFlight / request_bytes + 1)),
        tickets_(static_cast<std::size_t>(num_tickets_)) {}
  // What is under way refers to the memory.
  ~StoreReader() {
    for (const DiskTicket& ticket : tickets_) {
      try {
        queue_.Wait(ticket);
      } catch (const Error&) {  // the first was told
      }
    }
  }
  StoreReader(const StoreReader&) = delete;
  StoreReader& operator=(const StoreReader&) = delete;

  double BytesPerS() {
    const double begin_s = NowSeconds();
    int64_t request = 0;
    for (; NowSeconds() - begin_s < kSeconds; ++request) {
      if (request >= num_tickets_) Finish(request - num_tickets_);
      Begin(request);
    }
    for (int64_t last = std::max<int64_t>(0, request - num_tickets_); last < request; ++last)
      Finish(last);
    return static_cast<double>(request * request_bytes_) / (NowSeconds() - begin_s);
  }

 private:
  DiskTicket& TicketOf(int64_t request) {
    return tickets_[static_cast<std::size_t>(request % num_tickets_)];
  }
  std::span<std::byte> MemoryOf(int64_t request) const {
    return memory_.subspan(static_cast<std::size_t>(request % num_slots_ * request_bytes_),
                           static_cast<std::size_t>(request_bytes_));
  }
  void Begin(int64_t request) {
    const int64_t num_requests = store_.file().size() / request_bytes_;
    const DiskRequest read = {DiskOp::kRead, &store_.file(),
                              request % num_requests * request_bytes_, MemoryOf(request)};
    TicketOf(request) = queue_.Submit({&read, 1});
  }
  // A disk that never answers must not hold up a stop.
  void Finish(int64_t request) {
    while (!queue_.Done(TicketOf(request))) {
      ThrowIfStopRequested();
      std::this_thread::sleep_for(kPoll);
    }
    queue_.Wait(TicketOf(request));
    checked_ ^= BlockHash(MemoryOf(request));
  }

  const Store& store_;
  DiskQueue& queue_;
  std::span<std::byte> memory_;
  int64_t request_bytes_;
  int64_t num_slots_;
  int64_t num_tickets_;
  std::vector<DiskTicket> tickets_;
  uint64_t checked_ = 0;
};

}  // namespace

double MeasureStoreReads(const Store& store, DiskQueue& queue, std::span<std::byte> memory) {
  const int64_t most_bytes =
      std::min(static_cast<int64_t>(memory.size()) / kLeastSlots, store.file().size());
  const int64_t request_bytes =
      std::min(kRequestBytes, most_bytes / kTileAlignBytes * kTileAlignBytes);
  if (request_bytes < kLeastRequestBytes) return 0.0;
  try {
    return StoreReader(store, queue, memory, request_bytes).BytesPerS();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInterrupted) throw;
    return 0.0;
  }
}

}  // namespace spillway
