#include "src/move/transfer_stream.h"

#include <chrono>
#include <utility>

#include "spillway/error.h"
#include "src/base/io_thread.h"
#include "src/base/stop_signal.h"

namespace spillway {
namespace {

// Moves begun and not finished, when no bounce ring says how many.
// Few, since what another stream needs sooner queues behind them.
constexpr uint64_t kMaxBegun = 8;
// Disk moves may be more, as long as they have fewer bytes together than 8 tiles: a layer's biases
// and norms, a page each, would leave the disk with half of what it can do at a time.
constexpr uint64_t kMaxBegunOnDisk = 16;
constexpr int64_t kMaxBegunBytes = 2 * kBytesInFlight;

constexpr std::chrono::milliseconds kStopPoll{100};

}  // namespace

TransferStream::TransferStream(const Options& options, std::unique_ptr<CopyQueue> copies)
    : options_(options),
      copies_(std::move(copies)),
      entries_(static_cast<std::size_t>(options.max_moves)) {
  if (options.num_chunks > 0) {
    chunk_bytes_ = static_cast<int64_t>(options.bounce.size()) / options.num_chunks;
  }
  worker_ = StartIoThread([this] { Run(); });
}

TransferStream::~TransferStream() { Stop(); }

void TransferStream::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
}

uint64_t TransferStream::Add(std::span<const Move> moves, const TraceLabel& label,
                             const NumberedMove& after) {
  const uint64_t after_compute = copies_->Mark();
  std::unique_lock lock(mutex_);
  for (const Move& move : moves) {
    changed_.wait(lock, [this] { return added_ - done_ < entries_.size() || failure_ != nullptr; });
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    At(added_ + 1) = {move, label, after, after_compute, {}, nullptr, {}};
    ++added_;
    changed_.notify_all();
  }
  return added_;
}

void TransferStream::Wait(uint64_t number) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= number || failure_ != nullptr; });
  if (done_ < number) std::rethrow_exception(failure_);
}

void TransferStream::WaitOrStop(uint64_t number) const {
  std::unique_lock lock(mutex_);
  while (
      !changed_.wait_for(lock, kStopPoll, [&] { return done_ >= number || failure_ != nullptr; })) {
    ThrowIfStopRequested();
  }
  if (done_ < number) std::rethrow_exception(failure_);
}

DiskMending TransferStream::mending() const {
  const std::lock_guard lock(mutex_);
  return mending_;
}

bool TransferStream::Reached(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return done_ >= number;
}

bool TransferStream::UsesBounce(const Move& move) const {
  return move.kind != MoveKind::kCopy && !move.on_host && options_.num_chunks > 0;
}

void TransferStream::Run() noexcept {
  try {
    while (Step()) {
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
  }
  changed_.notify_all();
  // Disk and device may still be at work on memory that its owner frees next.
  // These moves never count as done.
  for (uint64_t number = done_ + 1; number <= begun_; ++number) {
    const Entry& entry = At(number);
    try {
      if (entry.move.kind == MoveKind::kCopy) {
        copies_->Finish(entry.copy);
      } else {
        options_.queue->Wait(entry.ticket);
      }
    } catch (...) {  // the first failure is the one that is told
    }
  }
}

// Begins what can begin, then finishes the oldest.
bool TransferStream::Step() {
  uint64_t added = 0;
  uint64_t done = 0;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stop_ || added_ > begun_ || begun_ > done_; });
    if (stop_) return false;
    added = added_;
    done = done_;
  }
  while (begun_ < added) {
    Entry& entry = At(begun_ + 1);
    if (!HasRoomFor(entry.move, begun_ - done)) break;
    if (begun_ > done && !CanBegin(entry)) break;  // finish what is under way first
    if (entry.after.stream != nullptr) entry.after.stream->Wait(entry.after.number);
    if (!Begin(entry)) break;
    ++begun_;
    bytes_begun_ += entry.move.bytes;
  }
  Finish(At(done + 1));
  bytes_begun_ -= At(done + 1).move.bytes;
  {
    const std::lock_guard lock(mutex_);
    ++done_;
  }
  changed_.notify_all();
  return true;
}

bool TransferStream::HasRoomFor(const Move& move, uint64_t num_begun) const {
  if (num_begun < kMaxBegun) return true;
  return move.kind != MoveKind::kCopy && num_begun < kMaxBegunOnDisk &&
         bytes_begun_ + move.bytes <= kMaxBegunBytes;
}

// Whether a move can begin without waiting for another stream, or for the computes that make what
// goes to disk.
bool TransferStream::CanBegin(const Entry& entry) const {
  if (entry.after.stream != nullptr && !entry.after.stream->Reached(entry.after.number))
    return false;
  return entry.move.kind != MoveKind::kWriteScratch || copies_->Reached(entry.after_compute);
}

// False when no memory is free for it; then something before it is under way.
bool TransferStream::Begin(Entry& entry) {
  const Move& move = entry.move;
  if (move.kind == MoveKind::kCopy) {
    BeginCopy(entry);
    return true;
  }
  SPILLWAY_CHECK(move.work == nullptr || !UsesBounce(move));
  entry.memory = move.device;
  if (UsesBounce(move)) {
    if (bounced_begun_ - bounced_done_ == static_cast<uint64_t>(options_.num_chunks)) return false;
    const auto chunk = static_cast<int64_t>(bounced_begun_++) % options_.num_chunks;
    SPILLWAY_CHECK(move.bytes <= chunk_bytes_);
    entry.memory = options_.bounce.data() + chunk * chunk_bytes_;
  }
  if (move.kind == MoveKind::kWriteScratch) {
    BeginWrite(entry);
  } else {
    BeginRead(entry);
  }
  return true;
}

void TransferStream::BeginCopy(Entry& entry) {
  const Move& move = entry.move;
  std::byte* to = move.outward ? move.host : move.device;
  entry.copy = {to, to == move.host ? move.device : move.host, move.bytes, entry.after_compute, 0};
  copies_->Begin(entry.copy);
}

void TransferStream::BeginWrite(Entry& entry) {
  const Move& move = entry.move;
  if (entry.memory != move.device) {
    Copy(entry.memory, move.device, entry);
  } else {
    copies_->WaitFor(entry.after_compute);
  }
  if (move.work != nullptr) move.work->Do();
  const DiskRequest request = move.scratch->BeginWrite(move.run, entry.Memory());
  entry.ticket = options_.queue->Submit({&request, 1}, &entry.label);
}

void TransferStream::BeginRead(Entry& entry) {
  const Move& move = entry.move;
  const DiskRequest request =
      move.kind == MoveKind::kReadTile
          ? options_.store->TileRequest(move.store_tensor, move.store_tile, entry.Memory())
          : move.scratch->BeginRead(move.run, entry.Memory());
  entry.ticket = options_.queue->Submit({&request, 1}, &entry.label);
}

void TransferStream::Finish(Entry& entry) {
  const Move& move = entry.move;
  if (move.kind == MoveKind::kCopy) return FinishCopy(entry.copy, entry);
  if (move.kind == MoveKind::kWriteScratch) {
    options_.queue->Wait(entry.ticket);
    move.scratch->EndWrite(move.run);
  } else {
    FinishRead(entry);
    if (UsesBounce(move)) Copy(move.device, entry.memory, entry);
    if (move.work != nullptr) move.work->Do();
  }
  if (UsesBounce(move)) ++bounced_done_;
}

void TransferStream::FinishRead(Entry& entry) {
  if (entry.move.kind == MoveKind::kReadTile) return ReadBack(entry);
  try {
    ReadBack(entry);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kIo && error.code() != ErrorCode::kCorrupt) throw;
    throw SpillLost(error);
  }
}

// Once again where other bytes came than were written.
void TransferStream::ReadBack(Entry& entry) {
  options_.queue->Wait(entry.ticket);
  if (IsWhole(entry)) return;
  BeginRead(entry);
  options_.queue->Wait(entry.ticket);
  DiskMending done = {1, 0, 0};
  if (entry.move.kind != MoveKind::kReadTile || options_.repair == nullptr) {
    CheckRead(entry);
  } else if (!IsWhole(entry)) {
    options_.repair->Repair(entry.move.store_tensor, entry.move.store_tile, entry.Memory());
    done = {0, 1, 0};
  }
  const std::lock_guard lock(mutex_);
  mending_ = mending_ + done;
}

bool TransferStream::IsWhole(const Entry& entry) const {
  try {
    CheckRead(entry);
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorrupt) throw;
    return false;
  }
}

void TransferStream::CheckRead(const Entry& entry) const {
  const Move& move = entry.move;
  if (move.kind == MoveKind::kReadTile) {
    options_.store->Verify(move.store_tensor, move.store_tile, entry.Memory());
  } else {
    move.scratch->EndRead(move.run, entry.Memory());
  }
}

void TransferStream::Copy(std::byte* to, const std::byte* from, const Entry& entry) {
  DeviceCopy copy = {to, from, entry.move.bytes, entry.after_compute, 0};
  copies_->Begin(copy);
  FinishCopy(copy, entry);
}

void TransferStream::FinishCopy(const DeviceCopy& copy, const Entry& entry) {
  const CopyTimes times = copies_->Finish(copy);
  if (TraceLog* log = options_.trace_log) {
    log->Add(TraceSpan{options_.copy_lane, entry.label, times.begin_s, times.end_s, copy.bytes});
  }
  if (options_.meter != nullptr) options_.meter->Add(times, copy.bytes);
}

}  // namespace spillway
