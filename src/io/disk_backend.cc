#include "src/io/disk_backend.h"

#include <fmt/format.h>

#include <utility>

#include "spillway/error.h"
#include "src/io/thread_backend.h"
#include "src/io/uring_backend.h"

namespace spillway {

std::unique_ptr<DiskBackend> MakeDiskBackend(const DiskBackendOptions& options) {
  std::string note;
  if (options.kind != DiskBackendKind::kThreads) {
    UringBackend::Made made = UringBackend::Make(options.depth, options.buffers);
    if (made.backend != nullptr) return std::move(made.backend);
    note = "io_uring is not available: " + made.refusal;
    if (options.kind == DiskBackendKind::kUring) {
      throw Error(ErrorCode::kIo, note + "; choose another disk backend");
    }
  }
  return std::make_unique<ThreadBackend>(options.depth, options.num_threads, std::move(note));
}

}  // namespace spillway
