#include "src/requests/input_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "spillway/error.h"
#include "src/requests/input_file.h"

namespace spillway {
namespace {

constexpr std::size_t kChunkBytes = 256 << 10;

}  // namespace

InputBytes::InputBytes(const std::filesystem::path& path, std::string name, std::string_view flag)
    : name_(std::move(name)), file_(OpenInput(path, flag)) {
  head_.resize(kMagicBytes);
  std::size_t size = 0;
  while (size < kMagicBytes) {
    const std::size_t got = ReadSome(file_, head_.data() + size, kMagicBytes - size, name_);
    if (got == 0) break;
    size += got;
  }
  head_.resize(size);
  decompressor_ = MakeDecompressor(head_, name_);
  if (decompressor_ != nullptr) packed_.resize(kChunkBytes);
}

std::size_t InputBytes::ReadFile(char* into, std::size_t size) {
  if (head_.empty()) return ReadSome(file_, into, size, name_);
  const std::size_t given = std::min(size, head_.size());
  std::copy_n(head_.begin(), given, into);
  head_.erase(0, given);
  return given;
}

std::size_t InputBytes::Read(char* into, std::size_t size) {
  if (decompressor_ == nullptr) return ReadFile(into, size);
  while (true) {
    const auto [consumed, produced] = decompressor_->Decompress(
        {packed_.data() + packed_begin_, packed_end_ - packed_begin_}, {into, size});
    packed_begin_ += consumed;
    if (produced > 0) return produced;
    if (consumed > 0 || packed_begin_ < packed_end_) continue;
    packed_begin_ = 0;
    packed_end_ = ReadFile(packed_.data(), packed_.size());
    if (packed_end_ > 0) continue;
    if (decompressor_->complete()) return 0;
    throw Error(ErrorCode::kInput,
                fmt::format("{}: its {} data ends in the middle; copy or make it again",
                            Printable(name_), decompressor_->format()));
  }
}

std::optional<std::string> InputBytes::ReadAll(std::size_t max_bytes) {
  std::string text;
  std::size_t size = 0;
  while (size <= max_bytes) {
    text.resize(size + kChunkBytes);
    const std::size_t got = Read(text.data() + size, kChunkBytes);
    size += got;
    if (got > 0) continue;
    text.resize(size);
    return text;
  }
  return std::nullopt;
}

}  // namespace spillway
