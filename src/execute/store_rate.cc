#include "src/execute/store_rate.h"

#include <algorithm>
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
constexpr int64_t kMostSlots = 2 * kBytesInFlight / kRequestBytes;
constexpr int64_t kLeastSlots = 4;

class StoreReader {
 public:
  StoreReader(const Store& store, DiskQueue& queue, std::span<std::byte> memory,
              int64_t request_bytes)
      : store_(store),
        queue_(queue),
        memory_(memory),
        request_bytes_(request_bytes),
        tickets_(static_cast<std::size_t>(
            std::min(kMostSlots, static_cast<int64_t>(memory.size()) / request_bytes))) {}
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
    double now_s = begin_s;
    int64_t bytes = 0;  // that came and were looked at
    for (int64_t request = 0; now_s - begin_s < kSeconds; ++request) {
      ThrowIfStopRequested();
      if (Finish(request)) bytes += request_bytes_;
      now_s = NowSeconds();
      Begin(request);
    }
    return static_cast<double>(bytes) / (now_s - begin_s);
  }

 private:
  DiskTicket& TicketOf(int64_t request) {
    return tickets_[static_cast<std::size_t>(request) % tickets_.size()];
  }
  std::span<std::byte> MemoryOf(int64_t request) const {
    const auto slot = static_cast<std::size_t>(request) % tickets_.size();
    return memory_.subspan(slot * static_cast<std::size_t>(request_bytes_),
                           static_cast<std::size_t>(request_bytes_));
  }
  // False where the slot had no request before.
  bool Finish(int64_t request) {
    if (request < std::ssize(tickets_)) return false;
    queue_.Wait(TicketOf(request));
    checked_ ^= BlockHash(MemoryOf(request));
    return true;
  }
  void Begin(int64_t request) {
    const int64_t num_requests = store_.file().size() / request_bytes_;
    const DiskRequest read = {DiskOp::kRead, &store_.file(),
                              request % num_requests * request_bytes_, MemoryOf(request)};
    TicketOf(request) = queue_.Submit({&read, 1});
  }

  const Store& store_;
  DiskQueue& queue_;
  std::span<std::byte> memory_;
  int64_t request_bytes_;
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
