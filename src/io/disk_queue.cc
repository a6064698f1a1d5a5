#include "src/io/disk_queue.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

double Seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

// Our own callers' duty; a file cannot bring us here.
void CheckRequest(const DiskRequest& request) {
  SPILLWAY_CHECK(request.file != nullptr);
  SPILLWAY_CHECK(request.offset >= 0 && request.bytes() > 0);
  SPILLWAY_CHECK(request.offset <= request.file->size() - request.bytes());
  SPILLWAY_CHECK(!request.file->direct() || IsBlockAligned(request));
}

// 0, 1, ... in an order that hands out 0 first.
std::vector<uint32_t> AllFree(int count) {
  std::vector<uint32_t> free(static_cast<std::size_t>(count));
  for (std::size_t at = 0; at < free.size(); ++at) {
    free[at] = static_cast<uint32_t>(free.size() - 1 - at);
  }
  return free;
}

}  // namespace

DiskQueue::DiskQueue(std::unique_ptr<DiskBackend> backend, DiskQueueOptions options)
    : options_(std::move(options)),
      pieces_(static_cast<std::size_t>(options_.num_pieces)),
      free_pieces_(AllFree(options_.num_pieces)),
      tickets_(static_cast<std::size_t>(options_.num_tickets)),
      free_tickets_(AllFree(options_.num_tickets)),
      pending_(static_cast<std::size_t>(options_.num_pieces)),
      backend_(std::move(backend)) {
  SPILLWAY_CHECK(options_.transfer_bytes > 0 && options_.transfer_bytes % kDiskBlockBytes == 0);
  SPILLWAY_CHECK(options_.num_pieces > 0 && options_.num_tickets > 0);
  backend_->Connect(*this);
}

DiskQueue::~DiskQueue() {
  {
    Lock lock(mutex_);
    done_.wait(lock, [this] { return num_open_ == 0; });
  }
  // Ends the threads that may still be on their way out of Completed.
  backend_.reset();
}

int64_t DiskQueue::Bytes(const DiskQueueOptions& options) {
  return options.num_pieces * static_cast<int64_t>(sizeof(Piece) + 2 * sizeof(uint32_t)) +
         options.num_tickets * static_cast<int64_t>(sizeof(Ticket) + sizeof(uint32_t));
}

int64_t DiskQueue::CountPieces(std::span<const DiskRequest> requests) const {
  int64_t count = 0;
  for (const DiskRequest& request : requests) {
    CheckRequest(request);
    count += (request.bytes() + options_.transfer_bytes - 1) / options_.transfer_bytes;
  }
  return count;
}

DiskTicket DiskQueue::Submit(std::span<const DiskRequest> requests, const void* user_data) {
  const int64_t num_pieces = CountPieces(requests);
  if (num_pieces == 0) return {};
  Lock lock(mutex_);
  const uint32_t index = TakeTicket(lock);
  Ticket& ticket = tickets_[index];
  ticket.pieces_left = num_pieces;
  ticket.span = {{index, ticket.generation}, user_data, requests.front().op, 0, {}, {}};
  const DiskTicket name = ticket.span.ticket;
  for (const DiskRequest& request : requests) {
    for (int64_t at = 0; at < request.bytes(); at += options_.transfer_bytes) {
      const auto bytes =
          static_cast<std::size_t>(std::min(options_.transfer_bytes, request.bytes() - at));
      Enqueue({request.op, request.file, request.offset + at,
               request.memory.subspan(static_cast<std::size_t>(at), bytes)},
              index, lock);
    }
  }
  StartPending(lock);
  return name;
}

uint32_t DiskQueue::TakeTicket(Lock& lock) {
  space_.wait(lock, [this] { return !free_tickets_.empty() || num_open_ == 0; });
  if (free_tickets_.empty()) {
    throw Error(ErrorCode::kIo, "too many disk requests have failed to go on; check the disk");
  }
  const uint32_t index = free_tickets_.back();
  free_tickets_.pop_back();
  ++num_open_;
  return index;
}

// Begins what is pending when it has to wait for a free piece, lest it wait for itself.
void DiskQueue::Enqueue(const DiskRequest& piece, uint32_t ticket, Lock& lock) {
  if (free_pieces_.empty()) {
    StartPending(lock);
    space_.wait(lock, [this] { return !free_pieces_.empty(); });
  }
  const uint32_t index = free_pieces_.back();
  free_pieces_.pop_back();
  pieces_[index].transfer = DiskTransfer(piece);
  pieces_[index].ticket = ticket;
  pending_[(first_pending_ + num_pending_) % pending_.size()] = index;
  ++num_pending_;
}

bool DiskQueue::HasRoomFor(const Piece& piece) const {
  if (num_in_flight_ == 0) return true;
  const int64_t bytes = bytes_in_flight_ + piece.transfer.request().bytes();
  return num_in_flight_ < backend_->depth() && bytes <= options_.in_flight_bytes;
}

void DiskQueue::StartPending(Lock& lock) {
  while (num_pending_ > 0 && HasRoomFor(pieces_[pending_[first_pending_]])) {
    const uint32_t index = pending_[first_pending_];
    first_pending_ = (first_pending_ + 1) % pending_.size();
    --num_pending_;
    Piece& piece = pieces_[index];
    if (tickets_[piece.ticket].failed) {
      Release(index, lock);
      continue;
    }
    NoteStart(piece);
    const DiskRequest request = piece.transfer.request();
    lock.unlock();  // starting 4 MiB of memory that is not registered takes up to 0.1 ms
    backend_->Start(static_cast<int32_t>(index), request);
    lock.lock();
  }
}

void DiskQueue::NoteStart(Piece& piece) {
  const Clock::time_point now = Clock::now();
  ++num_in_flight_;
  bytes_in_flight_ += piece.transfer.request().bytes();
  Direction& direction = For(piece.transfer.request().op);
  ++direction.totals.attempts;
  if (direction.num_in_flight++ == 0) direction.busy_since = now;
  Ticket& ticket = tickets_[piece.ticket];
  if (ticket.span.begin == Clock::time_point{}) ticket.span.begin = now;
}

void DiskQueue::NoteEnd(const Piece& piece, DiskTransfer::Step step) {
  const Clock::time_point now = Clock::now();
  --num_in_flight_;
  bytes_in_flight_ -= piece.transfer.request().bytes();
  Direction& direction = For(piece.transfer.request().op);
  if (--direction.num_in_flight == 0) {
    direction.totals.busy_s += Seconds(now - direction.busy_since);
  }
  Ticket& ticket = tickets_[piece.ticket];
  ticket.span.end = now;
  if (step == DiskTransfer::Step::kFinished) {
    direction.totals.bytes += piece.transfer.request().bytes();
    ticket.span.bytes += piece.transfer.request().bytes();
  } else if (!std::exchange(ticket.failed, true)) {
    ticket.failure = piece.transfer.failure();
  }
}

void DiskQueue::Completed(int32_t id, int64_t result) noexcept {
  Lock lock(mutex_);
  const auto index = static_cast<uint32_t>(id);
  Piece& piece = pieces_[index];
  const DiskTransfer::Step step = piece.transfer.Advance(result);
  const bool again = step == DiskTransfer::Step::kAgain || step == DiskTransfer::Step::kPause;
  if (again && !tickets_[piece.ticket].failed) {
    ++For(piece.transfer.request().op).totals.attempts;
    const DiskRequest rest = piece.transfer.Remaining();
    lock.unlock();
    if (step == DiskTransfer::Step::kPause) std::this_thread::sleep_for(kPauseBetweenAttempts);
    backend_->Start(id, rest);
    return;
  }
  NoteEnd(piece, step);
  Release(index, lock);
  StartPending(lock);
}

void DiskQueue::Release(uint32_t piece, Lock& lock) {
  const uint32_t ticket = pieces_[piece].ticket;
  free_pieces_.push_back(piece);
  space_.notify_all();
  if (--tickets_[ticket].pieces_left == 0) FinishTicket(ticket, lock);
}

void DiskQueue::FinishTicket(uint32_t index, Lock& lock) {
  Ticket& ticket = tickets_[index];
  if (!ticket.failed) {
    if (options_.on_done) {
      const DiskSpan span = ticket.span;
      lock.unlock();
      options_.on_done(span);
      lock.lock();
    }
    ++ticket.generation;
    free_tickets_.push_back(index);
  }
  --num_open_;
  done_.notify_all();
  space_.notify_all();
}

bool DiskQueue::DoneLocked(DiskTicket name) const {
  const Ticket& ticket = tickets_[name.index];
  return ticket.generation != name.generation || (ticket.failed && ticket.pieces_left == 0);
}

bool DiskQueue::Done(DiskTicket ticket) const {
  SPILLWAY_CHECK(ticket.index < tickets_.size());
  const Lock lock(mutex_);
  return DoneLocked(ticket);
}

void DiskQueue::Wait(DiskTicket ticket) {
  SPILLWAY_CHECK(ticket.index < tickets_.size());
  Lock lock(mutex_);
  done_.wait(lock, [&] { return DoneLocked(ticket); });
  // Free tickets have moved on to their next generation: this one is still here because it failed.
  if (tickets_[ticket.index].generation != ticket.generation) return;
  const DiskFailure failure = tickets_[ticket.index].failure;
  lock.unlock();
  ThrowDiskFailure(failure);
}

int DiskQueue::num_in_flight() const {
  const Lock lock(mutex_);
  return num_in_flight_;
}

DiskTotals DiskQueue::totals(DiskOp op) const {
  const Lock lock(mutex_);
  const Direction& direction = directions_[op == DiskOp::kRead ? 0 : 1];
  DiskTotals totals = direction.totals;
  if (direction.num_in_flight > 0) totals.busy_s += Seconds(Clock::now() - direction.busy_since);
  return totals;
}

}  // namespace spillway
