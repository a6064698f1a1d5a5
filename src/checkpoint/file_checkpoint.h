// A checkpoint whose tensors are in one or more open files: safetensors and PyTorch's.
// Thread rule: const methods from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/element_layout.h"
#include "src/checkpoint/model_file.h"
#include "src/checkpoint/range_checksums.h"

namespace spillway {

struct StoredTensor {
  CheckpointTensor tensor;
  int64_t offset = 0;      // of the first byte, in its file
  int64_t file_bytes = 0;  // that it takes there, where the container says it
  // Where its bytes are not simply the following ones; null: they are.
  std::unique_ptr<const ElementLayout> layout = nullptr;
};

struct WeightsFile {
  ModelFile file;
  std::vector<StoredTensor> tensors;
  std::vector<ChecksummedRange> checksums;  // where the container has them
  std::string_view format;                  // of the container
};

class FileCheckpoint : public Checkpoint {
 public:
  // Requires: every tensor that can be read is within its file.
  // Throws: Error kModelInconsistent when two shards hold a tensor of the same name.
  FileCheckpoint(std::string_view format, std::vector<WeightsFile> shards);

  std::string_view format() const override { return format_; }
  const std::vector<CheckpointTensor>& tensors() const override { return tensors_; }
  // Throws: also Error kModelMalformed: a storage has now been read as a whole, and its checksum
  // differs.
  void Read(int64_t index, int64_t offset, std::span<std::byte> out) const override;
  void VisitFiles(const std::function<void(const ModelFile&)>& visit) const override {
    for (const ModelFile& file : files_) visit(file);
  }

 private:
  struct Place {
    std::size_t file;
    int64_t offset;
    std::unique_ptr<const ElementLayout> layout;
  };

  void ReadBytes(const CheckpointTensor& tensor, std::size_t file, int64_t offset,
                 std::span<std::byte> out) const;
  void ReadLaidOut(const CheckpointTensor& tensor, const Place& place, int64_t first_element,
                   std::span<std::byte> out) const;

  std::string_view format_;
  std::vector<ModelFile> files_;
  // Checksums of files_[i]; each has a lock of its own, so const methods may change it.
  std::vector<std::unique_ptr<RangeChecksums>> checksums_;
  std::vector<CheckpointTensor> tensors_;
  std::vector<Place> places_;  // of tensors_[i]
};

}  // namespace spillway
