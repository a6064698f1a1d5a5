// CodedMatrix: a matrix [outputs, inputs], or a stack of some, that a checkpoint has as codes,
// scales and zero points, read as the fp32 values that they stand for: scale * (code - zero).
// Thread rule: const methods from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/published_tensor.h"  // ElementBox
#include "src/checkpoint/quantisation.h"

namespace spillway {

// Indices of its parts in the checkpoint; -1: absent.
struct CodedParts {
  std::string name;  // of the matrix: "model.layers.0.mlp.up_proj.weight"
  int64_t codes = -1;
  int64_t scales = -1;
  int64_t zeros = -1;
  int64_t groups = -1;  // the group of each input
};

class CodedMatrix {
 public:
  virtual ~CodedMatrix() = default;

  int64_t rows() const { return rows_; }  // of all of a stack
  int64_t cols() const { return cols_; }
  // [rows, cols], or [stack, rows of one, cols].
  std::vector<int64_t> shape() const {
    if (stack_ == 0) return {rows_, cols_};
    return {stack_, rows_ / stack_, cols_};
  }

  // Fills `out`, row by row. Throws: what Checkpoint::Read throws; Error kModelMalformed: a group
  // that is not there.
  virtual void Decode(const ElementBox& box, std::span<float> out) const = 0;

  // Type that holds the codes as they are; nullopt: none does, and why.
  struct Holding {
    std::optional<DType> dtype;
    std::string_view obstacle = {};  // CheckpointTensor::why_decoded
  };
  virtual Holding holding() const { return {}; }

  // Fills `out` with rows in that type. Requires: there is one. Throws: as Decode.
  virtual void ReadRows(int64_t first_row, std::span<std::byte> out) const;

 protected:
  // `stack`: matrices that the rows are of; 0: there is no stack.
  CodedMatrix(int64_t rows, int64_t cols, int64_t stack = 0)
      : rows_(rows), cols_(cols), stack_(stack) {}

 private:
  int64_t rows_;
  int64_t cols_;
  int64_t stack_;
};

// Lifetime: `checkpoint` outlives it. Throws: Error kModelInconsistent: parts are missing, or
// shapes do not agree.
std::unique_ptr<const CodedMatrix> MakeCodedMatrix(const Checkpoint& checkpoint,
                                                   const CodedParts& parts,
                                                   const Quantisation& codes);

}  // namespace spillway
