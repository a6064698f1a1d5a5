// The disk backend for systems without io_uring: pread and pwrite on a few threads.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "src/io/disk_backend.h"

namespace spillway {

class ThreadBackend : public DiskBackend {
 public:
  // `note` says why it was chosen. Throws: Error kSystemLimit.
  ThreadBackend(int depth, int num_threads, std::string note);
  ~ThreadBackend() override;

  std::string_view name() const override { return "threads"; }
  std::string note() const override { return note_; }
  int depth() const override { return static_cast<int>(ring_.size()); }
  void Connect(DiskSink& sink) override { sink_ = &sink; }
  void Start(int32_t id, const DiskRequest& request) override;

 private:
  struct Job {
    int32_t id = 0;
    DiskRequest request;
  };

  void Work();
  void StopThreads();

  std::string note_;
  DiskSink* sink_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Job> ring_;  // guarded by mutex_, as all below
  std::size_t first_ = 0;  // of the waiting jobs in ring_
  std::size_t num_waiting_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace spillway
