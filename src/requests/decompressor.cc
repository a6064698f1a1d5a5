#include "src/requests/decompressor.h"

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

[[noreturn]] void ThrowDamaged(const std::string& name, std::string_view format, const char* why) {
  throw Error(ErrorCode::kInput, fmt::format("{}: its {} data is damaged ({}); make it again",
                                             Printable(name), format, why));
}

class GzipData final : public Decompressor {
 public:
  explicit GzipData(std::string name) : name_(std::move(name)) {
    constexpr int kGzipAlone = 16;
    if (::inflateInit2(&stream_, MAX_WBITS + kGzipAlone) != Z_OK) throw std::bad_alloc();
  }
  ~GzipData() override { ::inflateEnd(&stream_); }
  GzipData(const GzipData&) = delete;
  GzipData& operator=(const GzipData&) = delete;

  Progress Decompress(std::span<const char> from, std::span<char> into) override {
    if (complete_) return Begin(from, into);
    constexpr std::size_t kMost = std::numeric_limits<uInt>::max();
    stream_.next_in = reinterpret_cast<z_const Bytef*>(const_cast<char*>(from.data()));
    stream_.avail_in = static_cast<uInt>(std::min(from.size(), kMost));
    stream_.next_out = reinterpret_cast<Bytef*>(into.data());
    stream_.avail_out = static_cast<uInt>(std::min(into.size(), kMost));
    const Progress whole = {stream_.avail_in, stream_.avail_out};
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    complete_ = result == Z_STREAM_END;
    if (!complete_ && result != Z_OK && result != Z_BUF_ERROR)
      ThrowDamaged(name_, format(), stream_.msg != nullptr ? stream_.msg : "out of memory");
    return {whole.consumed - stream_.avail_in, whole.produced - stream_.avail_out};
  }

  bool complete() const override { return complete_; }
  std::string_view format() const override { return "gzip"; }

 private:
  // Next behind a member: zeros that fill a block of a tape, or a further member.
  Progress Begin(std::span<const char> from, std::span<char> into) {
    const auto zeros = static_cast<std::size_t>(
        std::ranges::find_if(from, [](char byte) { return byte != 0; }) - from.begin());
    if (zeros > 0 || from.empty()) return {zeros, 0};
    ::inflateReset(&stream_);
    complete_ = false;
    return Decompress(from, into);
  }

  std::string name_;
  z_stream stream_{};
  bool complete_ = false;
};

class ZstdData final : public Decompressor {
 public:
  explicit ZstdData(std::string name) : name_(std::move(name)), stream_(::ZSTD_createDStream()) {
    if (stream_ == nullptr) throw std::bad_alloc();
  }

  Progress Decompress(std::span<const char> from, std::span<char> into) override {
    if (complete_ && from.empty()) return {};
    ZSTD_inBuffer in = {from.data(), from.size(), 0};
    ZSTD_outBuffer out = {into.data(), into.size(), 0};
    const std::size_t result = ::ZSTD_decompressStream(stream_.get(), &out, &in);
    if (::ZSTD_isError(result) != 0) ThrowDamaged(name_, format(), ::ZSTD_getErrorName(result));
    complete_ = result == 0;
    return {in.pos, out.pos};
  }

  bool complete() const override { return complete_; }
  std::string_view format() const override { return "zstd"; }

 private:
  struct StreamDeleter {
    void operator()(ZSTD_DStream* stream) const { ::ZSTD_freeDStream(stream); }
  };

  std::string name_;
  std::unique_ptr<ZSTD_DStream, StreamDeleter> stream_;
  bool complete_ = false;
};

// Frames of zstd, and those that its tools put in front to be skipped.
bool IsZstd(std::string_view head) {
  const bool skippable =
      head.size() == kMagicBytes && (head[0] & 0xF0) == 0x50 && head.substr(1) == "\x2A\x4D\x18";
  return skippable || head == "\x28\xB5\x2F\xFD";
}

}  // namespace

std::unique_ptr<Decompressor> MakeDecompressor(std::string_view head, const std::string& name) {
  if (head.starts_with("\x1F\x8B")) return std::make_unique<GzipData>(name);
  if (IsZstd(head)) return std::make_unique<ZstdData>(name);
  return nullptr;
}

}  // namespace spillway
