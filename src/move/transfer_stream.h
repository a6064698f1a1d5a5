// TransferStream: one link's moves, carried out in the order in which they were added, on a thread
// of its own. How the device's memory is copied to and from is its CopyQueue's; a move begins after
// the computes that were begun before it was added. A disk read is begun as soon as its turn and
// the memory for it come, several at a time; checks and copies run when it is the oldest. What
// comes back from disk with other bytes is read once again, in case it was the way and not the
// disk. Thread rule: Add by one thread; Wait by any. The steady state allocates nothing.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "spillway/error.h"
#include "spillway/trace.h"
#include "src/device/copy_queue.h"
#include "src/io/disk_queue.h"
#include "src/io/scratch.h"
#include "src/move/link_meter.h"
#include "src/report/trace_log.h"
#include "src/store/repair_store.h"
#include "src/store/store.h"

namespace spillway {

// Loss of what rows had spilled to disk: it cannot be read back. It was made by the run, and can be
// made again.
class SpillLost : public Error {
 public:
  explicit SpillLost(const Error& error) : Error(error.code(), error.what()) {}
};

// Work of the CPU on memory that moves write to disk or read from there, on the stream's thread.
// Does not throw.
class MoveWork {
 public:
  virtual void Do() noexcept = 0;

 protected:
  ~MoveWork() = default;
};

enum class MoveKind { kCopy, kReadTile, kReadScratch, kWriteScratch };

// `bytes` bytes to or from `device`, memory of the device. The other end is `host` (kCopy: from
// there to `device`, or back with `outward`), a tile of the store, or a run of a scratch file.
struct Move {
  MoveKind kind = MoveKind::kCopy;
  bool outward = false;
  bool on_host = false;  // `device` is CPU memory that the CPU attends to: the disk reaches it
  std::byte* device = nullptr;
  std::byte* host = nullptr;
  int64_t bytes = 0;
  int64_t store_tensor = 0;
  int64_t store_tile = 0;
  Scratch* scratch = nullptr;
  ScratchRun run;
  // Work of moves that do not bounce; null: none. That of kWriteScratch is done before this move
  // and those after it begin, that of kReadScratch when this move and those before it have come.
  // Lifetime: as the memory's.
  MoveWork* work = nullptr;
};

class TransferStream;

// Move `number` of a stream; null: none.
struct NumberedMove {
  const TransferStream* stream = nullptr;
  uint64_t number = 0;
};

class TransferStream {
 public:
  struct Options {
    DiskQueue* queue = nullptr;           // null when nothing is on disk
    const Store* store = nullptr;         // of kReadTile
    const StoreRepair* repair = nullptr;  // of the store; null: what is damaged ends the run
    // Memory that disk bytes cross where the device is not the CPU: num_chunks chunks.
    std::span<std::byte> bounce;
    int64_t num_chunks = 0;
    int max_moves = 1024;           // added and not done
    LinkMeter* meter = nullptr;     // of copies; null: none
    TraceLog* trace_log = nullptr;  // the same
    TraceLane copy_lane = TraceLane::kCpuToGpu;
  };

  // Lifetime: what the options name outlives the stream. Throws: Error kSystemLimit.
  TransferStream(const Options& options, std::unique_ptr<CopyQueue> copies);
  ~TransferStream();  // stops
  TransferStream(const TransferStream&) = delete;
  TransferStream& operator=(const TransferStream&) = delete;

  // The number of the last of these moves, to wait for; of the last one before when there are none.
  // They are traced as `label`, and begin after `after`, of another stream, is done. Waits while
  // max_moves are not done. Lifetime: the memory of both ends, until the wait or the stream's end.
  uint64_t Add(std::span<const Move> moves, const TraceLabel& label,
               const NumberedMove& after = {});

  // Ends what was begun and drops what was not; what was counted is final then. Nothing may be
  // added or waited for afterwards.
  void Stop();

  // Returns when the moves up to `number` are done. Throws: what the first failing move threw.
  void Wait(uint64_t number) const;

  // Waits as Wait does, for the engine. Throws: also Error kInterrupted, soon after a stop was
  // asked for.
  void WaitOrStop(uint64_t number) const;

  // Reads from disk that gave other bytes than were written, and what helped.
  DiskMending mending() const;

 private:
  struct Entry {
    Move move;
    TraceLabel label;
    NumberedMove after;
    uint64_t after_compute = 0;
    DiskTicket ticket;
    std::byte* memory = nullptr;  // what the disk reads or writes
    DeviceCopy copy;              // of kCopy

    std::span<std::byte> Memory() const { return {memory, static_cast<std::size_t>(move.bytes)}; }
  };

  void Run() noexcept;
  bool Step();  // false at the end
  bool HasRoomFor(const Move& move, uint64_t num_begun) const;
  bool CanBegin(const Entry& entry) const;
  bool Begin(Entry& entry);
  void BeginCopy(Entry& entry);
  void BeginWrite(Entry& entry);
  void BeginRead(Entry& entry);
  void Finish(Entry& entry);
  void FinishRead(Entry& entry);
  void ReadBack(Entry& entry);
  bool IsWhole(const Entry& entry) const;
  void CheckRead(const Entry& entry) const;
  void Copy(std::byte* to, const std::byte* from, const Entry& entry);
  void FinishCopy(const DeviceCopy& copy, const Entry& entry);
  bool Reached(uint64_t number) const;
  bool UsesBounce(const Move& move) const;
  Entry& At(uint64_t number) { return entries_[number % entries_.size()]; }

  Options options_;
  std::unique_ptr<CopyQueue> copies_;
  int64_t chunk_bytes_ = 0;
  std::vector<Entry> entries_;  // a ring; entry n is move n
  // State of the worker only.
  uint64_t begun_ = 0;
  int64_t bytes_begun_ = 0;  // of moves begun and not finished
  uint64_t bounced_begun_ = 0;
  uint64_t bounced_done_ = 0;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  // Guarded by mutex_.
  uint64_t added_ = 0;
  uint64_t done_ = 0;
  bool stop_ = false;
  std::exception_ptr failure_;
  DiskMending mending_;

  std::thread worker_;
};

}  // namespace spillway
