// A checkpoint on disk, whatever its container: names, shapes, and reads straight into the caller's
// memory. Opening reads headers only; no tensor data is held. Thread rule: const methods from any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/dtype.h"
#include "src/checkpoint/model_file.h"

namespace spillway {

struct CheckpointTensor {
  std::string name;           // as in the file
  DType dtype = DType::kF16;  // as Read gives it: as on disk, or fp32 for fp64
  std::vector<int64_t> shape;
  int64_t bytes = 0;  // shape[0] rows; of a vector as many elements
  // Message of the Error kModelUnsupported for whoever needs the tensor, which cannot be read: its
  // elements are of another type, say. Empty: it can.
  std::string refusal = {};
  // Type of codes in the file ("Q4_K"), which Read decodes; empty: there are none. With a refusal
  // Read gives the codes' bytes, for whoever knows what they stand for.
  std::string_view coded = {};
  // Type in which ReadRows gives the same weights; nullopt: in none.
  std::optional<DType> held = std::nullopt;
  // Of codes: why there is no such type ("has inputs in another order"); empty: there is one, or
  // none is sought.
  std::string_view why_decoded = {};
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  // "safetensors", "torch zip", "numpy folder"
  virtual std::string_view format() const = 0;

  // Every tensor, sorted by name; indices are stable.
  virtual const std::vector<CheckpointTensor>& tensors() const = 0;

  // The index of the tensor called exactly so; -1 when absent.
  int64_t FindExact(std::string_view name) const;

  // The index of the tensor called `name`, also found with or without a leading "model.", or as one
  // of the text part of a larger model; -1 when absent.
  int64_t Find(std::string_view name) const;

  // Reads `out.size()` bytes of tensor `index` from byte `offset` of its (contiguous, row-major)
  // data. Requires: it can be read; offset + out.size() <= tensors()[index].bytes. Throws: Error
  // kIo, kModelTruncated, kModelUnsupported (a value beyond fp32), kCorrupt (the file changed since
  // it was opened).
  virtual void Read(int64_t index, int64_t offset, std::span<std::byte> out) const = 0;

  // Fills `out` with rows of tensor `index`, of all matrices of a stack, from `first_row` on, in
  // the type `held`: codes as they are published, which nothing rounds. Requires: it has one; whole
  // rows. Throws: as Read, and Error kNonFinite, kModelMalformed.
  virtual void ReadRows(int64_t index, int64_t first_row, std::span<std::byte> out) const;

  // Calls `visit` for each file whose bytes decide the tensors', in an order that is always the
  // same: the weight files, or of a store its table, which has checksums of the rest. A generated
  // checkpoint has none. Throws: Error kModelMissing, kSystemLimit, kIo, and what `visit` throws.
  virtual void VisitFiles(const std::function<void(const ModelFile&)>& visit) const = 0;

  // Frees the memory that is kept from one Read to the next, when no more are to come soon.
  virtual void FreeBuffers() const {}
};

// Finds out which container `folder` holds (model.safetensors, its index, pytorch_model.bin, its
// index, or a FlexGen numpy folder) and opens it. Throws: Error kModelMissing, kModelMalformed,
// kModelTruncated, kModelUnsupported, kModelInconsistent, kUnsafe.
std::unique_ptr<Checkpoint> OpenCheckpoint(const std::filesystem::path& folder);

// One file of weights by itself, a shard too; null where its name is not one that such files have.
// Throws: as OpenCheckpoint.
std::unique_ptr<Checkpoint> OpenWeightsFile(const std::filesystem::path& path);

}  // namespace spillway
