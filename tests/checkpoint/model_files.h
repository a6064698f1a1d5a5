// Model files written by hand, good and bad, in a folder of their own. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/checkpoint/checkpoint.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace spillway::testing {

// A row of a table of bad files: what the file holds, and how it must be refused.
struct BadFile {
  const char* name;
  std::string bytes;
  ErrorCode code;
  const char* text;  // part of the message
};

inline void PrintTo(const BadFile& file, std::ostream* out) { *out << file.name; }

// `value` in little-endian order.
template <typename T>
std::string Bytes(T value) {
  std::string bytes(sizeof(T), '\0');
  for (std::size_t at = 0; at < sizeof(T); ++at) {
    bytes[at] = static_cast<char>(static_cast<uint64_t>(value) >> (8 * at));
  }
  return bytes;
}

// Length, header, data.
std::string Safetensors(std::string_view header, std::string_view data);

// `"name":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]}`
std::string HeaderEntry(std::string_view name, std::string_view dtype, std::string_view shape,
                        std::string_view range);

// Two tensors: "a" fp16 [2, 3] of bytes 0..11, "b" fp32 [1] of bytes 12..15.
std::string GoodSafetensors();

// A version 1 file with this dictionary.
std::string Npy(std::string_view dict, std::string_view data);
std::string GoodNpy();  // fp16 [2, 3]

struct ZipFile {
  std::string name;
  std::string data;
};

// Mistakes of a zip writer, as changes of single fields.
struct ZipFault {
  uint16_t flags = 0;
  uint16_t method = 0;
  uint32_t crc_xor = 0;           // in both headers
  uint32_t local_size_add = 0;    // in the local header only
  uint32_t local_offset_add = 0;  // of the last entry, in the directory
  bool different_local_name = false;
};

std::string Zip(const std::vector<ZipFile>& files, const ZipFault& fault = {});

// Pickle opcodes for a tensor of storage `key`, as torch writes them.
struct TensorPickle {
  std::string name = "a";
  std::string storage_type = "torch\nHalfStorage";
  std::string key = "0";
  int32_t storage_elements = 6;
  int32_t offset = 0;
  std::vector<int32_t> sizes = {2, 3};
  std::vector<int32_t> strides = {3, 1};
};
std::string PickleOf(const std::vector<TensorPickle>& tensors);
std::string PickleString(std::string_view text);

// "m/data.pkl", "m/byteorder" and the storage "m/data/0" of 12 bytes.
std::vector<ZipFile> TorchFiles(std::string_view pickle);
std::string GoodTorchZip();  // fp16 [2, 3]

// The config.json of a two-block OPT of hidden size 8, without its closing brace: a test adds keys.
std::string TinyConfig();

// ExpectError for OpenCheckpoint(folder).
void ExpectOpenError(ErrorCode code, std::string_view text, const std::filesystem::path& folder);

// All bytes of the tensor called `name`.
std::string ReadAll(const Checkpoint& checkpoint, std::string_view name);

}  // namespace spillway::testing
