#include "src/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <utility>

#include "spillway/error.h"
#include "src/checkpoint/file_kind.h"
#include "src/checkpoint/safetensors_header.h"

namespace spillway {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensor bytes are used as they are on disk");

constexpr int64_t kPrefixBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

// The header's length, checked against the format's limit and the file's size, before anything is
// allocated.
int64_t HeaderBytes(const ModelFile& file) {
  const std::string start = file.ReadStart(64);
  if (!ForeignKind(start).empty()) {
    throw Error(ErrorCode::kModelMalformed, NotExpectedKind(file, "a safetensors file"));
  }
  if (file.size() < kPrefixBytes)
    ThrowMalformed(file, fmt::format("has {} bytes, too short for weights", file.size()));
  uint64_t length = 0;
  std::memcpy(&length, start.data(), sizeof(length));
  if (length > kMaxHeaderBytes) {
    ThrowMalformed(file, fmt::format("not a safetensors file: a header of {} bytes (at most {})",
                                     length, kMaxHeaderBytes));
  }
  const auto header_bytes = static_cast<int64_t>(length);
  if (header_bytes > file.size() - kPrefixBytes) {
    throw Error(
        ErrorCode::kModelTruncated,
        fmt::format("{}: the header needs bytes 8-{} but the file ends at {}; download it again",
                    Printable(file.name()), kPrefixBytes + header_bytes, file.size()));
  }
  return header_bytes;
}

}  // namespace

WeightsFile ReadSafetensors(ModelFile file) {
  const int64_t header_bytes = HeaderBytes(file);
  std::string header(static_cast<std::size_t>(header_bytes), '\0');
  file.ReadAt(kPrefixBytes, std::as_writable_bytes(std::span(header)));
  // White space may stand around the JSON.
  const std::size_t first = header.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || header[first] != '{')
    ThrowMalformed(file, "the header does not start with {");
  const int64_t data_begin = kPrefixBytes + header_bytes;
  std::vector<StoredTensor> tensors =
      ParseSafetensorsHeader(header, file.size() - data_begin, file.name());
  for (StoredTensor& stored : tensors) stored.offset += data_begin;
  return {std::move(file), std::move(tensors), {}, "safetensors"};
}

}  // namespace spillway
