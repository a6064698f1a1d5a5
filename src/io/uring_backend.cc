#include "src/io/uring_backend.h"

#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "spillway/error.h"
#include "src/base/io_thread.h"
#include "src/io/thread_backend.h"

namespace spillway {
namespace {

constexpr uint64_t kStop = ~uint64_t{0};  // no request's id

// The kernel takes at most 1 GiB as one registered buffer.
constexpr std::size_t kBufferBytes = std::size_t{1} << 30;

constexpr int kThreadsAfterTheRing = 8;
constexpr int64_t kLookUpNs = 200'000'000;

// Patience with errors that pass: it ends two seconds after the first.
class Patience {
 public:
  // Waits a moment and says whether to go on.
  bool Has(int error) {
    if (error == EINTR) return true;
    if (error != EAGAIN && error != EBUSY && error != ENOMEM) return false;
    const auto now = std::chrono::steady_clock::now();
    if (!end_) end_ = now + std::chrono::seconds(2);
    if (now > *end_) return false;
    std::this_thread::sleep_for(kPauseBetweenAttempts);
    return true;
  }

 private:
  std::optional<std::chrono::steady_clock::time_point> end_;
};

bool HasReadAndWrite(io_uring& ring) {
  const std::unique_ptr<io_uring_probe, void (*)(io_uring_probe*)> probe(
      ::io_uring_get_probe_ring(&ring), ::io_uring_free_probe);
  return probe != nullptr && io_uring_opcode_supported(probe.get(), IORING_OP_READ) != 0 &&
         io_uring_opcode_supported(probe.get(), IORING_OP_WRITE) != 0;
}

}  // namespace

UringBackend::Made UringBackend::Make(int depth, std::span<const std::span<std::byte>> buffers) {
  SPILLWAY_CHECK(depth > 0);
  io_uring ring{};
  // One entry more than requests, for the word to stop. The completion ring is twice as long: with
  // at most `depth` requests in flight neither can overflow.
  const int error = ::io_uring_queue_init(static_cast<unsigned>(depth) + 1, &ring, 0);
  if (error != 0) return {nullptr, std::strerror(-error)};
  if (!HasReadAndWrite(ring)) {
    ::io_uring_queue_exit(&ring);
    return {nullptr, "the kernel's io_uring has no plain reads"};
  }
  std::unique_ptr<UringBackend> backend(new UringBackend(ring, depth, buffers));
  std::string refusal = backend->Probe();
  if (!refusal.empty()) backend.reset();
  return {std::move(backend), std::move(refusal)};
}

// Takes a request that does nothing through the ring: a sandbox may allow the making of a ring and
// not its use. Empty: it came back.
std::string UringBackend::Probe() {
  io_uring_prep_nop(::io_uring_get_sqe(&ring_));
  int error = SubmitLocked();
  io_uring_cqe* entry = nullptr;
  if (error == 0) error = WaitForEntry(&entry);
  if (error != 0) return std::strerror(error);
  ::io_uring_cqe_seen(&ring_, entry);
  return {};
}

UringBackend::UringBackend(const io_uring& ring, int depth,
                           std::span<const std::span<std::byte>> buffers)
    : ring_(ring), depth_(depth) {
  in_flight_.reserve(static_cast<std::size_t>(depth));
  Register(buffers);
}

void UringBackend::Connect(DiskSink& sink) {
  sink_ = &sink;
  reaper_ = StartIoThread([this] { Reap(); });
}

UringBackend::~UringBackend() {
  if (reaper_.joinable()) StopReaper();
  ::io_uring_queue_exit(&ring_);
}

void UringBackend::StopReaper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (after_the_ring_ == nullptr) {
      io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
      SPILLWAY_CHECK(entry != nullptr);
      io_uring_prep_nop(entry);
      io_uring_sqe_set_data64(entry, kStop);
      SubmitLocked();  // where it fails, the reaper's next look at stopping_ is soon
    }
  }
  reaper_.join();
}

std::string UringBackend::note() const {
  const std::lock_guard lock(mutex_);
  return note_;
}

void UringBackend::Register(std::span<const std::span<std::byte>> buffers) {
  std::vector<iovec> parts;
  for (const std::span<std::byte> buffer : buffers) {
    for (std::size_t at = 0; at < buffer.size(); at += kBufferBytes) {
      registered_.push_back(buffer.subspan(at, std::min(kBufferBytes, buffer.size() - at)));
      parts.push_back({registered_.back().data(), registered_.back().size()});
    }
  }
  if (parts.empty()) return;
  const int error =
      ::io_uring_register_buffers(&ring_, parts.data(), static_cast<unsigned>(parts.size()));
  if (error == 0) return;
  // Costs speed only: the pages of each request are then looked up anew.
  const std::size_t bytes =
      std::accumulate(registered_.begin(), registered_.end(), std::size_t{0},
                      [](std::size_t sum, const auto& part) { return sum + part.size(); });
  note_ = fmt::format("{} bytes of buffers not registered: {} (ulimit -l)", bytes,
                      std::strerror(-error));
  registered_.clear();
}

// The registered buffer that holds all of `memory`, -1 when none does.
int UringBackend::BufferIndex(std::span<const std::byte> memory) const {
  const auto holds = [&](std::span<const std::byte> buffer) {
    return memory.data() >= buffer.data() &&
           memory.data() + memory.size() <= buffer.data() + buffer.size();
  };
  const auto found = std::ranges::find_if(registered_, holds);
  return found == registered_.end() ? -1 : static_cast<int>(found - registered_.begin());
}

// Files are not registered: that saves two atomic operations a request, 0.01 % of the 0.5 ms that a
// mebibyte takes at 2 GB/s.
void UringBackend::PrepareLocked(int32_t id, const DiskRequest& request) {
  const int fd = request.file->fd();
  std::byte* data = request.memory.data();
  const auto size = static_cast<unsigned>(request.memory.size());
  const auto offset = static_cast<uint64_t>(request.offset);
  const int buffer = BufferIndex(request.memory);
  io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
  SPILLWAY_CHECK(entry != nullptr);
  if (request.op == DiskOp::kRead) {
    buffer >= 0 ? io_uring_prep_read_fixed(entry, fd, data, size, offset, buffer)
                : io_uring_prep_read(entry, fd, data, size, offset);
  } else {
    buffer >= 0 ? io_uring_prep_write_fixed(entry, fd, data, size, offset, buffer)
                : io_uring_prep_write(entry, fd, data, size, offset);
  }
  io_uring_sqe_set_data64(entry, static_cast<uint64_t>(id));
}

void UringBackend::Start(int32_t id, const DiskRequest& request) {
  if (!StartInRing(id, request)) after_the_ring_->Start(id, request);
}

// False: the ring is left, now or before.
bool UringBackend::StartInRing(int32_t id, const DiskRequest& request) {
  const std::lock_guard lock(mutex_);
  if (after_the_ring_ != nullptr) return false;
  PrepareLocked(id, request);
  in_flight_.push_back(id);
  const int error = SubmitLocked();
  if (error == 0) return true;
  in_flight_.pop_back();  // its entry is never taken: nobody submits any more
  LeaveRingLocked(error);
  return false;
}

// Hands the entry to the kernel; the errno where it does not take it. One that is short of memory
// is asked again for a while.
int UringBackend::SubmitLocked() {
  Patience patience;
  while (true) {
    const int count = ::io_uring_submit(&ring_);
    if (count > 0) return 0;
    const int error = count == 0 ? EAGAIN : -count;
    if (!patience.Has(error)) return error;
  }
}

void UringBackend::LeaveRingLocked(int error) {
  if (after_the_ring_ != nullptr) return;
  const std::string text = fmt::format("io_uring failed in the run: {}", std::strerror(error));
  auto threads = std::make_unique<ThreadBackend>(depth_, kThreadsAfterTheRing, text);
  threads->Connect(*sink_);
  after_the_ring_ = std::move(threads);
  note_ += (note_.empty() ? "" : "; ") + text;
}

// The errno where no entry can be had. Looks up now and then, for a stop that could not be sent.
int UringBackend::WaitForEntry(io_uring_cqe** entry) {
  Patience patience;
  while (true) {
    // Without the feature liburing would submit from this thread, for the timeout.
    const bool can_look_up = (ring_.features & IORING_FEAT_EXT_ARG) != 0;
    __kernel_timespec wait = {0, kLookUpNs};
    const int error = -(can_look_up ? ::io_uring_wait_cqe_timeout(&ring_, entry, &wait)
                                    : ::io_uring_wait_cqe(&ring_, entry));
    if (error == 0) return 0;
    if (error == ETIME && stopping_) return ETIME;
    if (error != ETIME && !patience.Has(error)) return error;
  }
}

// Reports the attempts that the kernel took and will not answer as ones to make again. What it may
// still move are the same bytes.
void UringBackend::GiveUpInFlight(int error) {
  std::vector<int32_t> lost;
  {
    const std::lock_guard lock(mutex_);
    if (error != ETIME) LeaveRingLocked(error);
    lost.swap(in_flight_);
  }
  for (const int32_t id : lost) sink_->Completed(id, -EAGAIN);
}

void UringBackend::Reap() {
  while (true) {
    io_uring_cqe* entry = nullptr;
    if (const int error = WaitForEntry(&entry); error != 0) return GiveUpInFlight(error);
    const uint64_t id = entry->user_data;
    const int32_t result = entry->res;
    ::io_uring_cqe_seen(&ring_, entry);
    if (id == kStop) return;
    {
      // All that the submitting thread did comes before what follows, which neither the language
      // nor a sanitizer knows from the kernel.
      const std::lock_guard lock(mutex_);
      std::erase(in_flight_, static_cast<int32_t>(id));
    }
    sink_->Completed(static_cast<int32_t>(id), result);
  }
}

}  // namespace spillway
