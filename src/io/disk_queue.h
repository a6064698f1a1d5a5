// DiskQueue: reads and writes of the disk tier, many at a time, handed in and waited for by ticket.
// Every result is checked, short transfers are completed, and a fault becomes the waiter's Error.
// Thread rule: any thread; the steady state allocates nothing.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "src/io/disk_backend.h"

namespace spillway {

// The name of a call of Submit. A default one is done.
struct DiskTicket {
  uint32_t index = 0;
  uint64_t generation = 0;

  bool operator==(const DiskTicket&) const = default;
};

struct DiskTotals {
  int64_t bytes = 0;     // of requests that succeeded
  int64_t attempts = 0;  // begun, repetitions included
  double busy_s = 0.0;   // in which at least one attempt was in flight
};

// Times at which the bytes of a ticket moved; for traces.
struct DiskSpan {
  DiskTicket ticket;
  const void* user_data = nullptr;  // as given to Submit
  DiskOp op = DiskOp::kRead;        // of its first request
  int64_t bytes = 0;
  std::chrono::steady_clock::time_point begin;  // its first attempt began
  std::chrono::steady_clock::time_point end;
};

// More only lengthen the queue (measured: 4 to 8 MiB are best). Not a number of requests: with so
// few small ones as of large ones the disk would wait for their latencies.
inline constexpr int64_t kBytesInFlight = int64_t{8} << 20;

struct DiskQueueOptions {
  int64_t transfer_bytes = 4 << 20;  // longer requests are split; a multiple of kDiskBlockBytes
  // Bytes at a time, unless one piece is more; of small pieces as many as the backend takes.
  int64_t in_flight_bytes = kBytesInFlight;
  int num_pieces = 1024;   // of split requests that wait or are in flight
  int num_tickets = 1024;  // not done yet, or failed
  // Called before a ticket that succeeded is done, on a thread of the backend, which it holds up.
  // Must not throw or wait for a ticket.
  std::function<void(const DiskSpan&)> on_done;
};

class DiskQueue final : private DiskSink {
 public:
  explicit DiskQueue(std::unique_ptr<DiskBackend> backend, DiskQueueOptions options = {});
  ~DiskQueue();  // waits for all that was submitted
  DiskQueue(const DiskQueue&) = delete;
  DiskQueue& operator=(const DiskQueue&) = delete;

  // Begins the requests, in this order as far as the backend keeps one, and returns at once; waits
  // only while all tickets or pieces are taken. The ticket stands for all of them or none: when one
  // fails, those not begun are dropped and no byte that was to be read may be used.
  // Requires: inside the files; for direct files the alignment of kDiskBlockBytes; no memory is in
  // two requests that are not done.
  // `user_data` comes back in the ticket's DiskSpan; the queue never looks at it.
  // Lifetime: files and memory outlive the Wait, failed or not; nothing touches them after it.
  // Throws: Error kIo when so many tickets have failed that none is left.
  DiskTicket Submit(std::span<const DiskRequest> requests, const void* user_data = nullptr);

  // Whether Wait would return or throw at once.
  bool Done(DiskTicket ticket) const;

  // Returns when all of the ticket's requests are complete. May be called by several threads, and
  // again: a failed ticket stays failed.
  // Throws: Error kIo, kDiskSpace, naming file and offset, after the last request has ended.
  void Wait(DiskTicket ticket);

  DiskTotals totals(DiskOp op) const;
  int num_in_flight() const;  // begun and not answered
  const DiskBackend& backend() const { return *backend_; }

  // Memory that a queue with these options allocates, once.
  static int64_t Bytes(const DiskQueueOptions& options);

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  struct Piece {
    DiskTransfer transfer;
    uint32_t ticket = 0;
  };
  struct Ticket {
    uint64_t generation = 1;
    int64_t pieces_left = 0;
    bool failed = false;
    DiskFailure failure;  // the first
    DiskSpan span;
  };
  struct Direction {
    DiskTotals totals;
    int num_in_flight = 0;
    Clock::time_point busy_since;
  };

  void Completed(int32_t id, int64_t result) noexcept override;
  int64_t CountPieces(std::span<const DiskRequest> requests) const;
  uint32_t TakeTicket(Lock& lock);
  void Enqueue(const DiskRequest& piece, uint32_t ticket, Lock& lock);
  bool HasRoomFor(const Piece& piece) const;
  void StartPending(Lock& lock);
  void NoteStart(Piece& piece);
  void NoteEnd(const Piece& piece, DiskTransfer::Step step);
  void Release(uint32_t piece, Lock& lock);
  void FinishTicket(uint32_t index, Lock& lock);
  bool DoneLocked(DiskTicket ticket) const;
  Direction& For(DiskOp op) { return directions_[op == DiskOp::kRead ? 0 : 1]; }

  DiskQueueOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable done_;   // a ticket ended
  std::condition_variable space_;  // a ticket or piece is free again
  // Guarded by mutex_, as all below but backend_.
  std::vector<Piece> pieces_;
  std::vector<uint32_t> free_pieces_;
  std::vector<Ticket> tickets_;
  std::vector<uint32_t> free_tickets_;
  int num_open_ = 0;               // tickets neither free nor failed
  std::vector<uint32_t> pending_;  // ring of pieces not begun
  std::size_t first_pending_ = 0;
  std::size_t num_pending_ = 0;
  int num_in_flight_ = 0;
  int64_t bytes_in_flight_ = 0;
  std::array<Direction, 2> directions_;
  std::unique_ptr<DiskBackend> backend_;
};

}  // namespace spillway
