#include "tests/checkpoint/model_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <span>

#include "src/checkpoint/crc32.h"

namespace spillway::testing {
namespace {

std::string Numbers(const std::vector<int32_t>& values) {
  std::string pickle = "(";
  for (const int32_t value : values) pickle += std::string("J") + Bytes(value);
  return pickle + "t";
}

std::string TensorValue(const TensorPickle& tensor) {
  return std::string("ctorch._utils\n_rebuild_tensor_v2\n((") + PickleString("storage") + "c" +
         tensor.storage_type + "\n" + PickleString(tensor.key) + PickleString("cpu") + "J" +
         Bytes(tensor.storage_elements) + "tQJ" + Bytes(tensor.offset) + Numbers(tensor.sizes) +
         Numbers(tensor.strides) +
         "\x89"
         "ccollections\nOrderedDict\n)RtR";
}

uint32_t CrcOf(std::string_view data) { return Crc32(std::as_bytes(std::span(data))); }

}  // namespace

std::string Safetensors(std::string_view header, std::string_view data) {
  return Bytes<uint64_t>(header.size()) + std::string(header) + std::string(data);
}

std::string HeaderEntry(std::string_view name, std::string_view dtype, std::string_view shape,
                        std::string_view range) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                     range);
}

std::string GoodSafetensors() {
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," +
                             HeaderEntry("b", "F32", "[1]", "[12,16]") + "," +
                             HeaderEntry("a", "F16", "[2,3]", "[0,12]") + "}   ";
  std::string data;
  for (char byte = 0; byte < 16; ++byte) data += byte;
  return Safetensors(header, data);
}

std::string Npy(std::string_view dict, std::string_view data) {
  return std::string("\x93NUMPY\x01\x00", 8) + Bytes(static_cast<uint16_t>(dict.size())) +
         std::string(dict) + std::string(data);
}

std::string GoodNpy() {
  return Npy("{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3), }     \n", "0123456789ab");
}

std::string Zip(const std::vector<ZipFile>& files, const ZipFault& fault) {
  std::string archive;
  std::string directory;
  for (const ZipFile& file : files) {
    const auto size = static_cast<uint32_t>(file.data.size());
    const uint32_t crc = CrcOf(file.data) ^ fault.crc_xor;
    const bool last = &file == &files.back();
    const auto offset = static_cast<uint32_t>(archive.size()) + (last ? fault.local_offset_add : 0);
    const auto name_bytes = static_cast<uint16_t>(file.name.size());
    std::string local_name = file.name;
    if (fault.different_local_name) local_name[0] = '#';
    const std::string common =
        Bytes(fault.flags) + Bytes(fault.method) + Bytes<uint32_t>(0) + Bytes(crc);
    archive += std::string("PK\x03\x04") + Bytes<uint16_t>(20) + common +
               Bytes(size + fault.local_size_add) + Bytes(size + fault.local_size_add) +
               Bytes(name_bytes) + Bytes<uint16_t>(0) + local_name + file.data;
    directory += std::string("PK\x01\x02") + Bytes<uint32_t>(20) + common + Bytes(size) +
                 Bytes(size) + Bytes(name_bytes) + std::string(12, '\0') + Bytes(offset) +
                 file.name;
  }
  const auto directory_offset = static_cast<uint32_t>(archive.size());
  const auto count = static_cast<uint16_t>(files.size());
  return archive + directory + std::string("PK\x05\x06") + Bytes<uint32_t>(0) + Bytes(count) +
         Bytes(count) + Bytes(static_cast<uint32_t>(directory.size())) + Bytes(directory_offset) +
         Bytes<uint16_t>(0);
}

std::string PickleString(std::string_view text) {
  return std::string("X") + Bytes(static_cast<uint32_t>(text.size())) + std::string(text);
}

std::string PickleOf(const std::vector<TensorPickle>& tensors) {
  std::string pickle =
      "\x80\x02"
      "ccollections\nOrderedDict\n)R(";
  for (const TensorPickle& tensor : tensors)
    pickle += PickleString(tensor.name) + TensorValue(tensor);
  return pickle + "u.";
}

std::vector<ZipFile> TorchFiles(std::string_view pickle) {
  return {{"m/data.pkl", std::string(pickle)},
          {"m/byteorder", "little"},
          {"m/data/0", "0123456789ab"},
          {"m/version", "3\n"}};
}

std::string GoodTorchZip() { return Zip(TorchFiles(PickleOf({TensorPickle{}}))); }

std::string TinyConfig() {
  return R"({"model_type":"opt","vocab_size":16,"hidden_size":8,"num_hidden_layers":2,"ffn_dim":32,)"
         R"("num_attention_heads":2,"max_position_embeddings":10,"word_embed_proj_dim":8,"torch_dtype":"float16")";
}

void ExpectOpenError(ErrorCode code, std::string_view text, const std::filesystem::path& folder) {
  ExpectError(code, text, [&] { OpenCheckpoint(folder); });
}

std::string ReadAll(const Checkpoint& checkpoint, std::string_view name) {
  const int64_t index = checkpoint.Find(name);
  if (index < 0) return "(absent)";
  std::string bytes(
      static_cast<std::size_t>(checkpoint.tensors()[static_cast<std::size_t>(index)].bytes), '\0');
  checkpoint.Read(index, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace spillway::testing
