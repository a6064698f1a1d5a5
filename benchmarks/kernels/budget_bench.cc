#include <fmt/core.h>

#include "benchmarks/kernels/attention_case.h"
#include "benchmarks/kernels/decode_case.h"
#include "benchmarks/kernels/subjects.h"
#include "kernels/kv/kv_log.h"
#include "spillway/kv_block.h"

namespace spillway::kernels {
namespace {

void BenchDecode(Bench& bench, const DecodeCase& of) {
  DecodeWork work(bench, of);
  const double seconds = bench.BestSeconds([&] { work.Run(); });
  const std::string name =
      fmt::format("step {}{}{}", KvPolicyName(of.kind), of.has_runs() ? " per head" : "",
                  of.rolls     ? " rolling"
                  : of.centres ? " centred"
                               : "");
  bench.Print(
      {.op = NameWithBits(name, of.kv_bits),
       .shape = fmt::format("{}/{} x {}, slots {}", of.heads(), of.kv_heads, of.head_dim, of.slots),
       .rows = of.rows(),
       .seconds = seconds,
       .bytes = static_cast<double>(work.ReadBytes()),
       .flops = work.Flops()});
}

// Work of a transfer's thread on rows on disk between passes: state and newest token out, state and
// the tokens of three passes in.
class KvLogWork {
 public:
  static constexpr int64_t kTokens = 3;

  KvLogWork(Bench& bench, int64_t slots, int64_t head_dim)
      : of_{KvPolicyKind::kH2o, slots, head_dim, 16}, h2o_(bench, of_) {}

  void Out() {
    ForEachRow([&](const KvLogRow& row, std::byte* to, std::byte* token) {
      TakeState(row, to);
      TakeToken(row, of_.slots - 1, token);
    });
  }
  void In() {
    ForEachRow([&](const KvLogRow& row, const std::byte* from, const std::byte* token) {
      PutLog(row, from, {token, token_bytes_, kTokens, of_.slots - kTokens});
    });
  }
  int64_t num_rows() const { return of_.rows(); }
  // Bytes read and written by one call that moves so many tokens a row.
  int64_t MovedBytes(int64_t num_tokens) const {
    return 2 * num_rows() * (state_bytes_ + num_tokens * token_bytes_);
  }

 private:
  template <typename Work>  // (KvLogRow, its state, its tokens)
  void ForEachRow(const Work& work) {
    std::byte* first = h2o_.NextKv();
    for (int64_t row = 0; row < num_rows(); ++row) {
      work(KvLogRow{first + row * h2o_.row_bytes(), of_.slots, of_.kv_heads, of_.head_dim, 16},
           state_.get() + row * state_bytes_, tokens_.get() + row * kTokens * token_bytes_);
    }
  }

  DecodeCase of_;
  DecodeWork h2o_;
  int64_t state_bytes_ = KvStateBytes(of_.kv_heads, of_.slots);
  int64_t token_bytes_ = KvSlotBytes(of_.kv_heads, of_.head_dim, 16);
  Bytes state_ = Allocate(num_rows() * state_bytes_);
  Bytes tokens_ = Allocate(num_rows() * kTokens * token_bytes_);
};

void BenchKvLog(Bench& bench, int64_t slots, int64_t head_dim) {
  KvLogWork work(bench, slots, head_dim);
  const auto print = [&](const char* op, int64_t num_tokens, double seconds) {
    bench.Print({.op = op,
                 .shape = fmt::format("32 x {}, slots {}", head_dim, slots),
                 .rows = work.num_rows(),
                 .seconds = seconds,
                 .bytes = static_cast<double>(work.MovedBytes(num_tokens))});
  };
  print("log out", 1, bench.BestSeconds([&] { work.Out(); }));
  print("log in", KvLogWork::kTokens, bench.BestSeconds([&] { work.In(); }));
}

}  // namespace

void BenchBudget(Bench& bench) {
  for (const int64_t slots : {24, 128, 512}) BenchKvLog(bench, slots, 64);
  for (const int64_t slots : kBudgetSlots)
    for (const KvPolicyKind kind : {KvPolicyKind::kFull, KvPolicyKind::kWindow, KvPolicyKind::kH2o})
      for (const KvBits kv_bits : kBenchedBits) BenchDecode(bench, {kind, slots, 64, kv_bits});
  // Keys turned as they are read, of a group of four and of single heads.
  for (const KvPolicyKind kind : {KvPolicyKind::kWindow, KvPolicyKind::kH2o}) {
    for (const int64_t group : {1, 4}) {
      for (const bool rolls : {false, true}) {
        DecodeCase of = {kind, 512, 64, 16, 32 / group, group};
        of.rolls = rolls;
        BenchDecode(bench, of);
      }
    }
  }
  // Keys that get their means as they are read, likewise.
  for (const KvPolicyKind kind : {KvPolicyKind::kFull, KvPolicyKind::kH2o}) {
    for (const int64_t group : {1, 4}) {
      for (const bool centres : {false, true}) {
        DecodeCase of = {kind, 512, 64, 4, 32 / group, group};
        of.centres = centres;
        BenchDecode(bench, of);
      }
    }
  }
  // Heads of a calibrated policy: some keep an eighth of what others keep.
  for (const int64_t slots : kBudgetSlots) {
    for (const KvBits kv_bits : kBenchedBits) {
      DecodeCase of = {KvPolicyKind::kH2o, slots, 64, kv_bits};
      of.run_shares = {0.25, 1.25, 0.5, 2.0};
      BenchDecode(bench, of);
    }
  }
  for (const bool scored : {false, true}) {
    const char* name = scored ? "prefill h2o" : "prefill full";
    for (const int64_t head_dim : {64, 128})
      BenchAttentionCase(bench, {name, 4, 0, bench.options().quick ? 512 : 2000, head_dim, scored});
  }
}

}  // namespace spillway::kernels
