// DecodeWork: decode of 16 rows of 32 heads that hold as many tokens as they may, over as many
// copies of their KV as exceed any cache, taken in turn. Shared by the subjects budget and
// bookkeeping.
#pragma once

#include "benchmarks/kernels/bench.h"
#include "kernels/attention/attention.h"
#include "spillway/kv_policy.h"

namespace spillway::kernels {

inline constexpr int64_t kBudgetSlots[] = {128, 512, 2048};  // a row's, in both subjects

struct DecodeCase {
  KvPolicyKind kind;  // kFull: plain attention over as many slots
  int64_t slots;
  int64_t head_dim;
  int kv_bits;
};

class DecodeWork {
 public:
  static constexpr int64_t kRows = 16;
  static constexpr int64_t kHeads = 32;

  // Lifetime: the bench outlives it.
  DecodeWork(Bench& bench, const DecodeCase& of);

  // One decode step of all rows, with the attention of the case's policy.
  void Run();
  // Bytes that Run reads: tokens and their state, without what fills a block up to pages.
  int64_t ReadBytes() const;
  int64_t width() const { return kHeads * of_.head_dim; }
  int64_t row_bytes() const { return row_bytes_; }
  // The rows' KV [kRows, row_bytes()], another copy in each call.
  std::byte* NextKv() { return kv_.get() + num_calls_++ % copies_ * kRows * row_bytes_; }
  // All copies; at least kFarBytes.
  const std::byte* kv() const { return kv_.get(); }

 private:
  void FillState(std::byte* row) const;
  AttentionTensors Tensors() const;
  void RunPlain();
  void RunBudget();

  Bench& bench_;
  DecodeCase of_;
  int64_t row_bytes_;
  int64_t copies_;
  Bytes kv_;
  Bytes qkv_ = RandomBytes(kRows * 3 * width(), DType::kF32);
  Bytes out_ = Allocate(kRows * width() * 4);
  int64_t workspace_bytes_;
  Bytes workspace_;
  int64_t num_calls_ = 0;
};

}  // namespace spillway::kernels
