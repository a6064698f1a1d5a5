// DecodeWork: decode of rows that hold as many tokens as they may, over as many copies of their KV
// as exceed any cache, taken in turn: 16 rows of 32 KV heads, or more rows where a row has fewer,
// so that their KV is as large. Shared by the subjects budget and bookkeeping.
#pragma once

#include <vector>

#include "benchmarks/kernels/bench.h"
#include "kernels/attention/attention.h"
#include "spillway/kv_policy.h"

namespace spillway::kernels {

inline constexpr int64_t kBudgetSlots[] = {128, 512, 2048};  // a row's, in both subjects

struct DecodeCase {
  KvPolicyKind kind;  // kFull: plain attention over as many slots
  int64_t slots;
  int64_t head_dim;
  KvBits kv_bits = {};
  int64_t kv_heads = 32;
  int64_t group = 1;  // heads that share a KV head
  // Slots of KV heads with caches of their own, as shares of `slots` and by turns, one in the mean;
  // none: heads lie together.
  std::vector<double> run_shares = {};
  bool rolls = false;
  bool centres = false;  // keys, of 4 bits

  bool has_runs() const { return !run_shares.empty(); }
  int64_t run_heads() const { return has_runs() ? 1 : kv_heads; }
  int64_t runs() const { return kv_heads / run_heads(); }
  int64_t RunSlots(int64_t run) const;
  int64_t RowSlots() const;  // of all runs
  int64_t heads() const { return kv_heads * group; }
  int64_t rows() const { return 16 * 32 / kv_heads; }
};

class DecodeWork {
 public:
  // Lifetime: the bench outlives it.
  DecodeWork(Bench& bench, const DecodeCase& of);

  // One decode step of all rows, with the attention of the case's policy.
  void Run();
  // Bytes that Run reads: tokens and their state, without what fills a block up to pages.
  int64_t ReadBytes() const;
  // Multiply-adds of q k and p v, two operations each.
  double Flops() const;
  int64_t row_bytes() const { return row_bytes_; }
  // The rows' KV [rows, row_bytes()], another copy in each call.
  std::byte* NextKv() { return kv_.get() + num_calls_++ % copies_ * of_.rows() * row_bytes_; }
  // All copies; at least kFarBytes.
  const std::byte* kv() const { return kv_.get(); }

 private:
  int64_t slot_bytes() const;
  void FillState(std::byte* run, int64_t num_slots) const;
  AttentionTensors Tensors() const;
  void RunPlain();
  void RunBudget();

  Bench& bench_;
  DecodeCase of_;
  int64_t row_bytes_;
  int64_t copies_;
  Bytes kv_;
  int64_t q_width_ = of_.heads() * of_.head_dim;
  int64_t qkv_width_ = q_width_ + 2 * of_.kv_heads * of_.head_dim;
  Bytes qkv_ = RandomBytes(of_.rows() * qkv_width_, DType::kF32);
  Bytes out_ = Allocate(of_.rows() * q_width_ * 4);
  int64_t workspace_bytes_;
  Bytes workspace_;
  std::vector<float> turns_;  // where the case rolls, of any angles
  std::vector<float> means_;  // where the case centres keys
  int64_t num_calls_ = 0;
};

}  // namespace spillway::kernels
