#include "src/checkpoint/file_hashes.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/base/hash.h"
#include "src/base/report_file.h"
#include "src/base/stop_signal.h"
#include "src/base/thread_pool.h"
#include "src/base/user_folders.h"

namespace spillway {
namespace {

constexpr int64_t kPieceBytes = 4 << 20;
constexpr int kMaxThreads = 8;
constexpr std::size_t kMaxRemembered = 8192;
// A file that changed this lately may change again within one tick of its clock.
constexpr int64_t kSettledNs = 2'000'000'000;

int64_t NowNs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

bool HasSettled(const FileStamp& stamp, int64_t now_ns) {
  return now_ns - std::max(stamp.modified_ns, stamp.changed_ns) >= kSettledNs;
}

// Whether the user's cache is there, or a home for it: a folder that is named and absent is not
// made for hashes.
bool HasCache(const std::filesystem::path& memory) {
  const std::filesystem::path cache = memory.parent_path().parent_path();
  const bool is_default = cache.filename() == ".cache";
  std::error_code ignored;
  return std::filesystem::exists(is_default ? cache.parent_path() : cache, ignored);
}

std::string TextOf(const std::map<FileStamp, uint64_t>& hashes) {
  std::string text;
  std::size_t to_drop = hashes.size() > kMaxRemembered ? hashes.size() - kMaxRemembered : 0;
  for (const auto& [stamp, hash] : hashes) {
    if (to_drop > 0) {
      --to_drop;
      continue;
    }
    text += fmt::format("{} {} {} {} {} {}\n", stamp.device, stamp.inode, stamp.size,
                        stamp.modified_ns, stamp.changed_ns, HashDigits(hash));
  }
  return text;
}

uint64_t HashOf(const ModelFile& file, const HashProgress& progress) {
  const int64_t num_pieces = (file.size() + kPieceBytes - 1) / kPieceBytes;
  std::vector<uint64_t> hashes(static_cast<std::size_t>(num_pieces));
  const auto most = static_cast<int>(std::clamp<int64_t>(num_pieces, 1, kMaxThreads));
  ThreadPool pool(std::min(NumPhysicalCores(), most));
  std::vector<std::vector<std::byte>> buffers(static_cast<std::size_t>(pool.num_threads()));
  std::atomic<int64_t> done = 0;
  auto hash_piece = [&](int64_t piece, int worker) {
    ThrowIfStopRequested();
    const int64_t begin = piece * kPieceBytes;
    const int64_t size = std::min(kPieceBytes, file.size() - begin);
    std::vector<std::byte>& bytes = buffers[static_cast<std::size_t>(worker)];
    bytes.resize(static_cast<std::size_t>(size));
    file.ReadAt(begin, bytes);
    hashes[static_cast<std::size_t>(piece)] = BlockHash(bytes);
    done += size;
    if (worker == 0 && progress) progress(file.name(), done, file.size());  // the caller's thread
  };
  pool.Run(num_pieces, hash_piece);
  return BlockHash(std::as_bytes(std::span(hashes)), static_cast<uint64_t>(file.size()));
}

}  // namespace

void FileHashes::Save() noexcept {
  if (memory_.empty() || learned_.empty()) return;
  try {
    if (!HasCache(memory_)) return;
    learned_.merge(Read(memory_));  // what other runs have learned meanwhile
    MakeCacheFolder(memory_.parent_path());
    ReportFile::InOwnFolder("hashes of model files", memory_).Write(TextOf(learned_));
    learned_.clear();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): see the declaration
  }
}

FileHashes::Hashes FileHashes::Read(const std::filesystem::path& memory) {
  Hashes hashes;
  if (memory.empty()) return hashes;
  std::ifstream in(memory);
  for (std::string line; hashes.size() < kMaxRemembered && std::getline(in, line);) {
    std::istringstream fields(line);
    FileStamp stamp;
    uint64_t hash = 0;
    fields >> stamp.device >> stamp.inode >> stamp.size >> stamp.modified_ns >> stamp.changed_ns >>
        std::hex >> hash;
    if (fields && fields.peek() == std::char_traits<char>::eof()) hashes[stamp] = hash;
  }
  return hashes;
}

uint64_t FileHashes::Of(const ModelFile& file, const HashProgress& progress) {
  if (!known_) known_ = Read(memory_);
  const FileStamp stamp = file.Stamp();
  if (const auto known = known_->find(stamp); known != known_->end()) return known->second;
  const int64_t now_ns = NowNs();
  const uint64_t hash = HashOf(file, progress);
  if (file.Stamp() != stamp) return hash;
  (*known_)[stamp] = hash;
  if (HasSettled(stamp, now_ns)) learned_[stamp] = hash;
  return hash;
}

std::filesystem::path FileHashMemory() {
  const std::filesystem::path folder = UserCacheFolder();
  return folder.empty() ? folder : folder / "file-hashes";
}

}  // namespace spillway
