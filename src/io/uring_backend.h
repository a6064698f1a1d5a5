// The disk backend over io_uring: one ring, submitted to from any thread, reaped by one of its own.
#pragma once

#include <liburing.h>

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
  std::string note() const override { return note_; }
  int depth() const override { return depth_; }
  void Connect(DiskSink& sink) override;  // Throws: Error kSystemLimit (no thread)
  void Start(int32_t id, const DiskRequest& request) override;

 private:
  UringBackend(const io_uring& ring, int depth, std::span<const std::span<std::byte>> buffers);

  void Register(std::span<const std::span<std::byte>> buffers);
  int BufferIndex(std::span<const std::byte> memory) const;
  void SubmitLocked();
  void Reap();
  void StopReaper();

  io_uring ring_;
  int depth_;
  std::vector<std::span<std::byte>> registered_;  // by index
  std::string note_;
  DiskSink* sink_ = nullptr;
  std::mutex mutex_;  // of the submission side; the completion side is reaper_'s alone
  std::thread reaper_;
};

}  // namespace spillway
