// Descriptor: owns one file descriptor; and the calls on it that must survive signals and
// non-blocking pipes.
// Thread rule: one thread at a time.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace spillway {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Up to `size` bytes, 0 at the end. Waits where the descriptor is non-blocking.
// Throws: Error kIo; kInput when it is closed or not open for reading. Both name `name`.
std::size_t ReadSome(const Descriptor& file, char* into, std::size_t size, const std::string& name);

// Everything up to the end; nullopt where that is over `max_bytes`.
// Throws: as ReadSome.
std::optional<std::string> ReadToEnd(const Descriptor& file, std::size_t max_bytes,
                                     const std::string& name);

// Opens a file, or waits for the other end of a pipe. Not valid, with errno: it cannot be opened.
// Throws: Error kInterrupted when a stop was asked for meanwhile, due or not: nothing has begun.
Descriptor OpenOrWait(const char* path, int flags);

// All of `bytes`.
// Throws: Error kDiskSpace when the disk, the quota or the file size limit is full; otherwise kIo.
// Both name `name`.
// Requires: SIGPIPE and SIGXFSZ are ignored, so that a closed pipe and a size limit come back as
// errors.
void WriteAll(const Descriptor& file, std::string_view bytes, const std::string& name);

// Throws: as WriteAll; never called again after it threw, since a second fsync may claim success
// for lost pages. What has nothing to sync (pipes, terminals) passes.
void Sync(const Descriptor& file, const std::string& name);

}  // namespace spillway
