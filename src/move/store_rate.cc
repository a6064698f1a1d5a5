#include "src/move/store_rate.h"

#include <algorithm>
#include <array>

#include "spillway/error.h"
#include "spillway/tile.h"
#include "src/io/disk_pace.h"

namespace spillway {
namespace {

constexpr double kSeconds = 0.25;
constexpr int64_t kLeastRequestBytes = int64_t{256} << 10;  // of less, latency would be measured
constexpr int64_t kLeastSlots = 4;
constexpr std::array kReads = {DiskOp::kRead};

}  // namespace

double MeasureStoreReads(const Store& store, DiskQueue& queue, std::span<std::byte> memory) {
  const int64_t most_bytes =
      std::min(static_cast<int64_t>(memory.size()) / kLeastSlots, store.file().size());
  const int64_t request_bytes =
      std::min(kPaceRequestBytes, most_bytes / kTileAlignBytes * kTileAlignBytes);
  if (request_bytes < kLeastRequestBytes) return 0.0;
  try {
    return DiskPace(queue, store.file(), memory, request_bytes).Move(kReads, kSeconds);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInterrupted) throw;
    return 0.0;
  }
}

}  // namespace spillway
