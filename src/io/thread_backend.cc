#include "src/io/thread_backend.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "spillway/error.h"
#include "src/base/io_thread.h"

namespace spillway {
namespace {

int64_t Attempt(const DiskRequest& request) {
  const int fd = request.file->fd();
  std::byte* data = request.memory.data();
  const std::size_t size = request.memory.size();
  const ssize_t count = request.op == DiskOp::kRead ? ::pread(fd, data, size, request.offset)
                                                    : ::pwrite(fd, data, size, request.offset);
  return count >= 0 ? count : -errno;
}

}  // namespace

ThreadBackend::ThreadBackend(int depth, int num_threads, std::string note)
    : note_(std::move(note)), ring_(static_cast<std::size_t>(depth)) {
  SPILLWAY_CHECK(depth > 0 && num_threads > 0);
  try {
    // More threads than requests in flight would never find work.
    for (int thread = 0; thread < std::min(num_threads, depth); ++thread) {
      threads_.push_back(StartIoThread([this] { Work(); }));
    }
  } catch (...) {
    StopThreads();
    throw;
  }
}

ThreadBackend::~ThreadBackend() { StopThreads(); }

void ThreadBackend::StopThreads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadBackend::Start(int32_t id, const DiskRequest& request) {
  {
    const std::lock_guard lock(mutex_);
    SPILLWAY_CHECK(num_waiting_ < ring_.size());
    ring_[(first_ + num_waiting_) % ring_.size()] = {id, request};
    ++num_waiting_;
  }
  changed_.notify_one();
}

void ThreadBackend::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || num_waiting_ > 0; });
    if (num_waiting_ == 0) return;
    const Job job = ring_[first_];
    first_ = (first_ + 1) % ring_.size();
    --num_waiting_;
    lock.unlock();
    sink_->Completed(job.id, Attempt(job.request));
    lock.lock();
  }
}

}  // namespace spillway
