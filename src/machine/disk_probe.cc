#include "src/machine/disk_probe.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "kernels/random_fill.h"
#include "spillway/error.h"
#include "src/clock.h"
#include "src/io/block_hash.h"
#include "src/stop_signal.h"

namespace spillway {
namespace {

constexpr int64_t kRequestBytes = int64_t{1} << 21;  // a tile of the store
// As much memory as a run of a few layers' weights reads into. Into little memory, in caches or
// not, reads are up to a third faster (measured on a virtual disk: 2.9 GB/s into 10 MiB, 2.65 into
// 100, 2.4 into 300).
constexpr int64_t kNumSlots = 128;
// One more than are in flight, as the engine has one being checked.
constexpr int64_t kNumTickets = kBytesInFlight / kRequestBytes + 1;
static_assert(kNumSlots > kNumTickets);

}  // namespace

DiskProbe::DiskProbe(const DiskFolder& folder, int64_t file_bytes)
    : file_(DiskFile::CreateScratch(folder, file_bytes / kRequestBytes * kRequestBytes)),
      memory_(kNumSlots * kRequestBytes) {
  // Zeros could be stored as none.
  kernels::FillUniform(memory_.View({0, memory_.bytes()}), DType::kF32, 11, 0, 1.0F);
  DiskBackendOptions backend;
  backend.buffers = {memory_.View({0, memory_.bytes()})};
  queue_ = std::make_unique<DiskQueue>(MakeDiskBackend(backend));
  for (int64_t at = 0; at < file_.size(); at += kRequestBytes) {
    ThrowIfStopRequested();
    queue_->Wait(Begin(DiskOp::kWrite, at / kRequestBytes));
  }
}

DiskProbe::~DiskProbe() = default;

std::span<std::byte> DiskProbe::Memory(int64_t request) const {
  return memory_.View({request % kNumSlots * kRequestBytes, kRequestBytes});
}

int64_t DiskProbe::MemoryBytes() { return kNumSlots * kRequestBytes; }

DiskTicket DiskProbe::Begin(DiskOp op, int64_t request) {
  const int64_t num_requests = file_.size() / kRequestBytes;
  const DiskRequest whole = {op, &file_, request % num_requests * kRequestBytes, Memory(request)};
  return queue_->Submit({&whole, 1});
}

double DiskProbe::Move(std::span<const DiskOp> ops, double seconds) {
  std::array<DiskTicket, kNumTickets> tickets;
  const double begin_s = NowSeconds();
  int64_t bytes = 0;
  while (NowSeconds() - begin_s < seconds) {
    ThrowIfStopRequested();
    DiskTicket& ticket = tickets[static_cast<std::size_t>(next_request_ % kNumTickets)];
    queue_->Wait(ticket);
    checked_ ^= BlockHash(Memory(next_request_ + kNumSlots - kNumTickets));  // that ticket's
    const DiskOp op = ops[static_cast<std::size_t>(next_request_) % ops.size()];
    ticket = Begin(op, next_request_++);
    bytes += kRequestBytes;
  }
  for (const DiskTicket& ticket : tickets) queue_->Wait(ticket);
  return static_cast<double>(bytes) / (NowSeconds() - begin_s);
}

std::string DiskProbe::Way() const {
  std::string way(queue_->backend().name());
  if (const std::string note = queue_->backend().note(); !note.empty())
    way += fmt::format(" ({})", note);
  if (!file_.direct()) way += fmt::format(", not direct: {}", file_.buffered_reason());
  return way;
}

}  // namespace spillway
