// The disk backend over io_uring: one ring, submitted to from any thread, reaped by one of its own.
// A ring that the kernel refuses to serve during the run is left, and threads take its place.
#pragma once

#include <liburing.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "src/io/disk_backend.h"

namespace spillway {

class UringBackend : public DiskBackend {
 public:
  // Result of asking for a ring: the backend, or why there is none.
  struct Made {
    std::unique_ptr<UringBackend> backend;
    std::string refusal;
  };
  static Made Make(int depth, std::span<const std::span<std::byte>> buffers);

  ~UringBackend() override;
  UringBackend(const UringBackend&) = delete;
  UringBackend& operator=(const UringBackend&) = delete;

  std::string_view name() const override { return "io_uring"; }
  std::string note() const override;
  int depth() const override { return depth_; }
  void Connect(DiskSink& sink) override;  // Throws: Error kSystemLimit (no thread)
  void Start(int32_t id, const DiskRequest& request) override;

 private:
  UringBackend(const io_uring& ring, int depth, std::span<const std::span<std::byte>> buffers);

  void Register(std::span<const std::span<std::byte>> buffers);
  int BufferIndex(std::span<const std::byte> memory) const;
  std::string Probe();
  void PrepareLocked(int32_t id, const DiskRequest& request);
  int SubmitLocked();
  bool StartInRing(int32_t id, const DiskRequest& request);
  void LeaveRingLocked(int error);
  void Reap();
  int WaitForEntry(io_uring_cqe** entry);
  void GiveUpInFlight(int error);
  void StopReaper();

  io_uring ring_;
  int depth_;
  std::vector<std::span<std::byte>> registered_;  // by index
  DiskSink* sink_ = nullptr;
  mutable std::mutex mutex_;  // of the submission side; the completion side is reaper_'s alone
  std::string note_;
  std::vector<int32_t> in_flight_;               // ids; guarded by mutex_
  std::unique_ptr<DiskBackend> after_the_ring_;  // once set, it stays; guarded by mutex_
  std::atomic<bool> stopping_ = false;
  std::thread reaper_;
};

}  // namespace spillway
