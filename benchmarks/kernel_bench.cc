// How fast the CPU kernels are, beside the limits measured in the same run: the rate at which all
// threads read memory, and, where it was built with it, the fp32 product of libtorch (MKL) at the
// same shape.
//   kernel_bench [--quick] [--isa portable|avx2|avx512|avx512_vnni|amx | --bf16] [--threads N]
//   [--only matmul|attention|budget|bookkeeping|other] [--no-torch]
#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/torch_linear.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/budget_attention.h"
#include "kernels/convert/convert.h"
#include "kernels/convert/quantise.h"
#include "kernels/kv/kv_head.h"
#include "kernels/kv/kv_log.h"
#include "kernels/matmul/matmul.h"
#include "kernels/rows/layer_norm.h"
#include "kernels/rows/random_fill.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"
#include "src/base/isa.h"
#include "src/base/thread_pool.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kFarBytes = int64_t{1}
                              << 30;  // what is read in turn to be sure that it comes from memory
constexpr int64_t kReadBytes = int64_t{64}
                               << 20;  // of it by each call that measures the memory itself

struct Options {
  bool quick = false;
  bool torch = true;
  std::string only;
  Isa isa = BestIsa();
  int num_threads = NumPhysicalCores();
};

using Bytes = std::unique_ptr<std::byte[], decltype(&std::free)>;

Bytes Allocate(int64_t size) {
  constexpr size_t kAlign = 1 << 21;  // large pages, as the engine's arenas ask for
  const size_t rounded = (static_cast<size_t>(size) + kAlign - 1) / kAlign * kAlign;
  void* data = std::aligned_alloc(kAlign, rounded);
  static_cast<void>(::madvise(data, rounded, MADV_HUGEPAGE));
  std::memset(data, 0, static_cast<size_t>(size));
  return Bytes(static_cast<std::byte*>(data), &std::free);
}

// Matrices of halfs in groups.
Bytes QuantisedBytes(int64_t rows, int64_t cols, DType dtype) {
  const int64_t row_bytes = RowBytes(dtype, cols);
  Bytes bytes = Allocate(rows * row_bytes);
  std::vector<uint16_t> halfs(static_cast<size_t>(cols));
  FillUniform(std::as_writable_bytes(std::span(halfs)), DType::kF16, 7, 0, 0.05F);
  for (int64_t row = 0; row < rows; ++row) {
    QuantiseRow(halfs, dtype, {bytes.get() + row * row_bytes, static_cast<size_t>(row_bytes)});
  }
  return bytes;
}

Bytes RandomBytes(int64_t count, DType dtype) {
  Bytes bytes = Allocate(count * DTypeBytes(dtype));
  FillUniform({bytes.get(), static_cast<size_t>(count * DTypeBytes(dtype))}, dtype, 7, 0, 0.05F);
  return bytes;
}

// The fastest of many calls: what other programs on the machine take is no property of ours.
using Clock = std::chrono::steady_clock;

double SecondsOf(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double BestSeconds(const Options& options, const std::function<void()>& work) {
  const double budget_s = options.quick ? 0.1 : 1.0;
  SecondsOf(work);
  double best = SecondsOf(work);
  const auto end = Clock::now() + std::chrono::duration<double>(budget_s);
  for (int call = 0; call < 3 || Clock::now() < end; ++call) best = std::min(best, SecondsOf(work));
  return best;
}

// For ratios on a machine whose rates wander: the work in turns, so that all meet the same moments.
// The median of each one's seconds over those of the first in the same turn.
std::vector<double> MedianRatios(const Options& options,
                                 const std::vector<std::function<void()>>& works) {
  const int num_turns = options.quick ? 101 : 301;
  std::vector<std::vector<double>> ratios(works.size());
  for (const auto& work : works) work();
  for (int turn = 0; turn < num_turns; ++turn) {
    const double first_s = SecondsOf(works[0]);
    for (size_t i = 0; i < works.size(); ++i)
      ratios[i].push_back((i == 0 ? first_s : SecondsOf(works[i])) / first_s);
  }
  std::vector<double> medians;
  for (auto& of_one : ratios) {
    std::ranges::sort(of_one);
    medians.push_back(of_one[of_one.size() / 2]);
  }
  return medians;
}

struct DecodeCase {
  KvPolicyKind kind;
  int64_t slots;
  int64_t head_dim;
  int kv_bits;
};

struct AttentionBench {
  const char* name;
  int64_t num_rows;
  int64_t past;
  int64_t num_new;
  int64_t head_dim;
  bool scored = false;  // with token scores
  int kv_bits = 16;
};

// "decode", "decode 4b"
std::string NameWithBits(std::string_view name, int kv_bits) {
  return kv_bits == 16 ? std::string(name) : fmt::format("{} {}b", name, kv_bits);
}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), pool_(options.num_threads) {
    const Bytes memory = RandomBytes(kFarBytes / 2, DType::kF16);
    int64_t begin = 0;
    const double seconds = BestSeconds(options, [&] {
      ReadAll(memory.get() + begin);
      begin = (begin + kReadBytes) % kFarBytes;
    });
    read_bytes_per_s_ = static_cast<double>(kReadBytes) / seconds;
    fmt::print("isa {}, {} threads, memory read {:.1f} GB/s\n", IsaName(options.isa),
               options.num_threads, read_bytes_per_s_ / 1e9);
    fmt::print("{:<12} {:<22} {:>6} {:>10} {:>9} {:>8} {:>10} {:>9}\n", "op", "shape", "rows", "us",
               "GB/s", "% read", "GFLOP/s", "x torch");
  }

  void Matmuls();
  void Attentions();
  void Budgets();
  void Bookkeepings();
  void Others();

 private:
  struct ReadTurn;

  bool Wanted(const char* group) const { return options_.only.empty() || options_.only == group; }
  void ReadAll(const std::byte* data);
  void MatmulShape(int64_t in, int64_t out, DType dtype);
  void OneRow(const char* model, int64_t hidden, int64_t num_layers, DType dtype);
  void AttentionShape(const AttentionBench& bench);
  void DecodeShape(const DecodeCase& of);
  void Bookkeeping(int64_t slots, int64_t head_dim);
  void KvLog(int64_t slots, int64_t head_dim);
  void Row(const std::string& op, const std::string& shape, int64_t rows, double seconds,
           double bytes, double flops, double torch_s = 0) {
    fmt::print("{:<12} {:<22} {:>6} {:>10.1f} {:>9.1f} {:>8.0f} {:>10.1f} {:>9}\n", op, shape, rows,
               seconds * 1e6, bytes / seconds / 1e9, 100 * bytes / seconds / read_bytes_per_s_,
               flops / seconds / 1e9, torch_s > 0 ? fmt::format("{:.2f}", torch_s / seconds) : "");
    std::fflush(stdout);
  }

  Options options_;
  ThreadPool pool_;
  double read_bytes_per_s_ = 0;
};

// One word of each line, in four streams a thread: nothing but the memory is in the way.
void Bench::ReadAll(const std::byte* data) {
  constexpr int64_t kChunk = 1 << 20;
  constexpr int64_t kStream = kChunk / 4;
  std::atomic<uint64_t> total{0};  // keeps the loads alive
  auto task = [&](int64_t chunk, int /*worker*/) {
    const std::byte* from = data + chunk * kChunk;
    uint64_t sum = 0;
    for (int64_t at = 0; at < kStream; at += 64) {
      for (int64_t stream = 0; stream < 4; ++stream) {
        sum += std::to_integer<uint64_t>(from[stream * kStream + at]);
      }
    }
    total += sum;
  };
  pool_.Run(kReadBytes / kChunk, task);
}

// Reads about `bytes`, each time others of kFarBytes.
struct Bench::ReadTurn {
  Bench& bench;
  const std::byte* memory;
  int64_t bytes;
  int64_t at = 0;

  ReadTurn(Bench& of, const std::byte* far_bytes, int64_t wanted)
      : bench(of), memory(far_bytes), bytes(wanted) {}
  void Run() {
    for (int64_t done = 0; done < bytes; done += kReadBytes) {
      bench.ReadAll(memory + at);
      at = (at + kReadBytes) % (kFarBytes - kReadBytes);
    }
  }
  // Of what Run reads, what was wanted.
  double Frac() const {
    return static_cast<double>(bytes) / static_cast<double>(RoundUp(bytes, kReadBytes));
  }
};

// As many copies of a matrix as exceed any cache, taken in turn.
struct MatmulBench {
  static constexpr int64_t kMaxRows = 512;

  int64_t in;
  int64_t out;
  DType dtype;
  int num_threads;
  Isa isa;
  int64_t weight_bytes = out * RowBytes(dtype, in);
  int64_t copies = std::max<int64_t>(1, kFarBytes / weight_bytes);
  Bytes weights = IsQuantised(dtype) ? QuantisedBytes(copies * out, in, dtype)
                                     : RandomBytes(copies * in * out, dtype);
  Bytes x = RandomBytes(kMaxRows * in, DType::kF32);
  Bytes y = Allocate(kMaxRows * out * 4);
  int64_t workspace_bytes = MatmulWorkspaceBytes(kMaxRows, in, num_threads, isa);
  Bytes workspace = Allocate(workspace_bytes);
  int64_t num_calls = 0;

  void Run(int64_t rows, ThreadPool& pool);
};

void MatmulBench::Run(int64_t rows, ThreadPool& pool) {
  MatmulPiece piece;
  piece.weight = weights.get() + num_calls++ % copies * weight_bytes;
  piece.weight_dtype = dtype;
  piece.num_out = out;
  piece.y = reinterpret_cast<float*>(y.get());
  piece.y_stride = out;
  MatmulArgs args;
  args.x = reinterpret_cast<const float*>(x.get());
  args.x_stride = in;
  args.rows = rows;
  args.in = in;
  args.pieces = {&piece, 1};
  Matmul(args, {workspace.get(), static_cast<size_t>(workspace_bytes)}, pool, isa);
}

void Bench::MatmulShape(int64_t in, int64_t out, DType dtype) {
  MatmulBench bench{in, out, dtype, options_.num_threads, options_.isa};
  [[maybe_unused]] const bool torch = options_.torch && dtype == DType::kF16;
  for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}) {
    if (options_.quick && (rows == 2 || rows == 64 || rows == 256)) continue;
    const double seconds = BestSeconds(options_, [&] { bench.Run(rows, pool_); });
    double torch_s = 0;
#if defined(SPILLWAY_TORCH)
    if (torch && rows >= 8) {
      TorchLinear linear(rows, in, out, options_.num_threads);
      torch_s = BestSeconds(options_, [&] { linear.Run(); });
    }
#endif
    Row(fmt::format("matmul {}", DTypeName(dtype)), fmt::format("{} -> {}", in, out), rows, seconds,
        static_cast<double>(bench.weight_bytes), 2.0 * static_cast<double>(rows * in * out),
        torch_s);
  }
}

// The products of a decode step of one row, layers of a model, beside the memory, in turns.
void Bench::OneRow(const char* model, int64_t hidden, int64_t num_layers, DType dtype) {
  const auto product = [&](int64_t in, int64_t out) {
    return MatmulBench{in, out, dtype, options_.num_threads, options_.isa};
  };
  std::array<MatmulBench, 4> layer = {product(hidden, 3 * hidden), product(hidden, hidden),
                                      product(hidden, 4 * hidden), product(4 * hidden, hidden)};
  int64_t bytes = 0;
  for (const MatmulBench& of : layer) bytes += num_layers * of.weight_bytes;
  const Bytes far_bytes = RandomBytes(kFarBytes / 2, DType::kF16);
  ReadTurn read(*this, far_bytes.get(), bytes);
  const auto products = [&] {
    for (int64_t i = 0; i < num_layers; ++i) {
      for (MatmulBench& of : layer) of.Run(1, pool_);
    }
  };
  const std::vector<double> ratios = MedianRatios(options_, {products, [&] { read.Run(); }});
  fmt::print("in turns, {}, {} layers of {} at 1 row: {:.0f} % of the memory's rate\n",
             DTypeName(dtype), num_layers, model, 100 * ratios[1] * read.Frac());
  std::fflush(stdout);
}

void Bench::Matmuls() {
  if (!Wanted("matmul")) return;
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kQ8, DType::kQ4}) {
    MatmulShape(2048, 2048, dtype);
    MatmulShape(2048, 8192, dtype);
    MatmulShape(8192, 2048, dtype);
    if (!options_.quick) MatmulShape(2048, 50272, dtype);
    if (IsQuantised(dtype)) continue;
    OneRow("opt-125m", 768, 12, dtype);
    OneRow("opt-1.3b", 2048, 1, dtype);
  }
}

void Bench::AttentionShape(const AttentionBench& bench) {
  const auto [name, num_rows, past, num_new, head_dim, scored, kv_bits] = bench;
  const int64_t heads = 2048 / head_dim;
  const int64_t width = heads * head_dim;
  const int64_t slots = RoundUp(past + num_new, KvBlockSlots(kv_bits));
  const int64_t row_bytes = slots * KvSlotBytes(heads, head_dim, kv_bits);
  const Bytes kv = RandomBytes(num_rows * row_bytes / 2, DType::kF16);
  const int64_t tokens = num_rows * num_new;
  const Bytes qkv = RandomBytes(tokens * 3 * width, DType::kF32);
  const Bytes out = Allocate(tokens * width * 4);
  std::vector<AttentionRow> rows;
  for (int64_t row = 0; row < num_rows; ++row)
    rows.push_back({kv.get() + row * row_bytes, slots, past, num_new, row * num_new, nullptr});
  const Bytes scores = Allocate(scored ? num_rows * heads * slots * 4 : 64);
  for (int64_t row = 0; scored && row < num_rows; ++row)
    rows[static_cast<size_t>(row)].token_scores =
        reinterpret_cast<float*>(scores.get()) + row * heads * slots;
  AttentionArgs args;
  args.q = reinterpret_cast<const float*>(qkv.get());
  args.k = args.q + width;
  args.v = args.k + width;
  args.qkv_stride = 3 * width;
  args.out = reinterpret_cast<float*>(out.get());
  args.out_stride = width;
  args.rows = rows;
  args.num_heads = args.num_kv_heads = heads;
  args.head_dim = head_dim;
  args.scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  args.token_scores_stride = slots;
  args.kv_bits = kv_bits;
  const int64_t workspace_bytes =
      AttentionWorkspaceBytesWithScores(slots, head_dim, options_.num_threads, options_.isa);
  const Bytes workspace = Allocate(workspace_bytes);
  const double seconds = BestSeconds(options_, [&] {
    Attention(args, {workspace.get(), static_cast<size_t>(workspace_bytes)}, pool_, options_.isa);
  });
  // Multiply-adds of q k and p v over what is visible.
  const double visible = static_cast<double>(num_new) *
                         (static_cast<double>(past) + (static_cast<double>(num_new) + 1) / 2);
  Row(NameWithBits(name, kv_bits), fmt::format("{} x {}, past {}", heads, head_dim, past),
      num_rows * num_new, seconds, static_cast<double>(num_rows * row_bytes),
      4.0 * visible * static_cast<double>(num_rows * width));
}

void Bench::Attentions() {
  if (!Wanted("attention")) return;
  for (const int kv_bits : {16, 8, 4}) {
    for (const int64_t head_dim : {64, 128}) {
      AttentionShape({"decode", 64, 512, 1, head_dim, false, kv_bits});
      AttentionShape({"decode", 16, 2000, 1, head_dim, false, kv_bits});
      AttentionShape({"prefill", 1, 0, 512, head_dim, false, kv_bits});
      AttentionShape({"prefill", 4, 0, 2000, head_dim, false, kv_bits});
    }
  }
}

// Decode of 16 rows of 32 heads that hold as many tokens as they may, over as many copies of their
// KV as exceed any cache, taken in turn. With kFull by plain attention, over as many slots.
struct DecodeBench {
  static constexpr int64_t kRows = 16;
  static constexpr int64_t kHeads = 32;

  KvPolicyKind kind;
  int64_t slots;
  int64_t head_dim;
  int kv_bits;
  int64_t width = kHeads * head_dim;
  int64_t row_bytes;
  int64_t copies;
  Bytes kv;
  Bytes qkv = RandomBytes(kRows * 3 * width, DType::kF32);
  Bytes out = Allocate(kRows * width * 4);
  int64_t workspace_bytes;
  Bytes workspace;
  int64_t num_calls = 0;

  DecodeBench(const Options& options, const DecodeCase& of);
  void FillState(std::byte* row) const;
  // Of one call: tokens and their state, without what fills a block up to pages.
  int64_t ReadBytes() const {
    const int64_t state = kind == KvPolicyKind::kFull ? 0 : kHeads * kKvStateBytes;
    return kRows * slots * (KvSlotBytes(kHeads, head_dim, kv_bits) + state);
  }
  std::byte* NextKv() { return kv.get() + num_calls++ % copies * kRows * row_bytes; }
  template <typename Args>
  void SetCommon(Args& args) const;
  void RunPlain(ThreadPool& pool, Isa isa);
  void RunBudget(ThreadPool& pool, Isa isa);
};

// Random halves are random codes, and as good as any for their min and scale.
DecodeBench::DecodeBench(const Options& options, const DecodeCase& of)
    : kind(of.kind),
      slots(of.slots),
      head_dim(of.head_dim),
      kv_bits(of.kv_bits),
      row_bytes(slots * (kind == KvPolicyKind::kFull ? KvSlotBytes : KvSlotBytesWithState)(
                            kHeads, head_dim, kv_bits)),
      copies(kFarBytes / (kRows * row_bytes) + 1),
      kv(RandomBytes(copies * kRows * row_bytes / 2, DType::kF16)),
      workspace_bytes(
          BudgetAttentionWorkspaceBytes(slots, head_dim, options.num_threads, options.isa)),
      workspace(Allocate(workspace_bytes)) {
  if (kind == KvPolicyKind::kFull) return;
  for (int64_t row = 0; row < copies * kRows; ++row) FillState(kv.get() + row * row_bytes);
}

void DecodeBench::FillState(std::byte* row) const {
  for (int64_t kv_head = 0; kv_head < kHeads; ++kv_head) {
    const KvHead<std::byte> head{
        row, kHeads, head_dim, kv_head, KvBlockBytesWithState(kHeads, head_dim, kv_bits), kv_bits};
    for (int64_t slot = 0; slot < slots; ++slot) {
      *head.Score(slot) = static_cast<float>((slot * 37 + kv_head * 11) % slots);
      *head.Position(slot) = static_cast<int32_t>(slot);
    }
  }
}

template <typename Args>
void DecodeBench::SetCommon(Args& args) const {
  args.q = reinterpret_cast<const float*>(qkv.get());
  args.k = args.q + width;
  args.v = args.k + width;
  args.qkv_stride = 3 * width;
  args.out = reinterpret_cast<float*>(out.get());
  args.out_stride = width;
  args.num_heads = args.num_kv_heads = kHeads;
  args.head_dim = head_dim;
  args.scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  args.kv_bits = kv_bits;
}

void DecodeBench::RunPlain(ThreadPool& pool, Isa isa) {
  std::vector<AttentionRow> rows;
  std::byte* first = NextKv();
  for (int64_t row = 0; row < kRows; ++row)
    rows.push_back({first + row * row_bytes, slots, slots - 1, 1, row, nullptr});
  AttentionArgs args;
  SetCommon(args);
  args.rows = rows;
  Attention(args, {workspace.get(), static_cast<size_t>(workspace_bytes)}, pool, isa);
}

void DecodeBench::RunBudget(ThreadPool& pool, Isa isa) {
  const bool window = kind == KvPolicyKind::kWindow;
  const int64_t held = slots - 1;
  const KvKeep keep{0, window ? 0 : held / 2, window ? held : held - held / 2};
  const int64_t position = held + num_calls / copies;
  std::vector<BudgetAttentionRow> rows;
  std::byte* first = NextKv();
  for (int64_t row = 0; row < kRows; ++row)
    rows.push_back({first + row * row_bytes, slots, held, position, keep, row});
  BudgetAttentionArgs args;
  SetCommon(args);
  args.rows = rows;
  args.kind = kind;
  BudgetAttention(args, {workspace.get(), static_cast<size_t>(workspace_bytes)}, pool, isa);
}

void Bench::DecodeShape(const DecodeCase& of) {
  DecodeBench bench(options_, of);
  const double seconds = BestSeconds(options_, [&] {
    of.kind == KvPolicyKind::kFull ? bench.RunPlain(pool_, options_.isa)
                                   : bench.RunBudget(pool_, options_.isa);
  });
  const std::string name = fmt::format("step {}", KvPolicyName(of.kind));
  Row(NameWithBits(name, of.kv_bits), fmt::format("32 x {}, slots {}", of.head_dim, of.slots),
      DecodeBench::kRows, seconds, static_cast<double>(bench.ReadBytes()),
      4.0 * static_cast<double>(of.slots * DecodeBench::kRows * bench.width));
}

// What keeping scores and finding victims costs, and both beside the memory, in turns.
void Bench::Bookkeeping(int64_t slots, int64_t head_dim) {
  DecodeBench plain(options_, {KvPolicyKind::kFull, slots, head_dim, 16});
  DecodeBench h2o(options_, {KvPolicyKind::kH2o, slots, head_dim, 16});
  ReadTurn read(*this, plain.kv.get(), plain.ReadBytes());
  std::vector<double> read_s;
  const std::vector<double> ratios =
      MedianRatios(options_, {[&] { plain.RunPlain(pool_, options_.isa); },
                              [&] { h2o.RunBudget(pool_, options_.isa); },
                              [&] { read_s.push_back(SecondsOf([&] { read.Run(); })); }});
  std::ranges::sort(read_s);
  const double memory_bytes_per_s =
      static_cast<double>(plain.ReadBytes()) / read.Frac() / read_s[read_s.size() / 2];
  const double plain_frac = ratios[2] * read.Frac();
  const double more_bytes =
      static_cast<double>(h2o.ReadBytes()) / static_cast<double>(plain.ReadBytes());
  fmt::print(
      "in turns, 32 x {}, slots {}: plain {:.0f} % of the memory's rate ({:.0f} GB/s), "
      "h2o {:.0f} %; h2o takes {:.1f} % more time\n",
      head_dim, slots, 100 * plain_frac, memory_bytes_per_s / 1e9,
      100 * plain_frac * more_bytes / ratios[1], 100 * (ratios[1] - 1));
  std::fflush(stdout);
}

constexpr int64_t kBudgetSlots[] = {128, 512, 2048};

void Bench::Bookkeepings() {
  if (!Wanted("bookkeeping")) return;
  for (const int64_t head_dim : {64, 128})
    for (const int64_t slots : kBudgetSlots) Bookkeeping(slots, head_dim);
}

// What a transfer's thread does to rows on disk between passes: state and newest token out, state
// and the tokens of three passes in. Read and written.
void Bench::KvLog(int64_t slots, int64_t head_dim) {
  constexpr int64_t kTokens = 3;
  DecodeBench h2o(options_, {KvPolicyKind::kH2o, slots, head_dim, 16});
  const int64_t state_bytes = KvStateBytes(DecodeBench::kHeads, slots);
  const int64_t token_bytes = KvSlotBytes(DecodeBench::kHeads, head_dim, 16);
  const Bytes state = Allocate(DecodeBench::kRows * state_bytes);
  const Bytes tokens = Allocate(DecodeBench::kRows * kTokens * token_bytes);
  const auto of_each_row = [&](const auto& work) {
    std::byte* first = h2o.NextKv();
    for (int64_t row = 0; row < DecodeBench::kRows; ++row) {
      work(KvLogRow{first + row * h2o.row_bytes, slots, DecodeBench::kHeads, head_dim, 16},
           state.get() + row * state_bytes, tokens.get() + row * kTokens * token_bytes);
    }
  };
  const auto print = [&](const char* op, int64_t num_tokens, double seconds) {
    Row(op, fmt::format("32 x {}, slots {}", head_dim, slots), DecodeBench::kRows, seconds,
        2.0 * static_cast<double>(DecodeBench::kRows * (state_bytes + num_tokens * token_bytes)),
        0);
  };
  print("log out", 1, BestSeconds(options_, [&] {
          of_each_row([&](const KvLogRow& row, std::byte* to, std::byte* token) {
            TakeState(row, to);
            TakeToken(row, slots - 1, token);
          });
        }));
  print("log in", kTokens, BestSeconds(options_, [&] {
          of_each_row([&](const KvLogRow& row, const std::byte* from, const std::byte* token) {
            PutLog(row, from, {token, token_bytes, kTokens, slots - kTokens});
          });
        }));
}

void Bench::Budgets() {
  if (!Wanted("budget")) return;
  for (const int64_t slots : {24, 128, 512}) KvLog(slots, 64);
  for (const int64_t slots : kBudgetSlots)
    for (const KvPolicyKind kind : {KvPolicyKind::kFull, KvPolicyKind::kWindow, KvPolicyKind::kH2o})
      for (const int kv_bits : {16, 8, 4}) DecodeShape({kind, slots, 64, kv_bits});
  for (const bool scored : {false, true}) {
    const char* name = scored ? "prefill h2o" : "prefill full";
    for (const int64_t head_dim : {64, 128})
      AttentionShape({name, 4, 0, options_.quick ? 512 : 2000, head_dim, scored});
  }
}

void Bench::Others() {
  if (!Wanted("other")) return;
  const int64_t count = options_.quick ? int64_t{32} << 20 : int64_t{256} << 20;
  const Bytes wide = RandomBytes(count, DType::kF32);
  const Bytes narrow = RandomBytes(count, DType::kF16);
  const std::span<std::byte> wide_span(wide.get(), static_cast<size_t>(count * 4));
  const std::span<std::byte> narrow_span(narrow.get(), static_cast<size_t>(count * 2));
  const double bytes = static_cast<double>(count);
  auto one_thread = [&](const char* name, double num_bytes, const std::function<void()>& work) {
    Row(name, fmt::format("{} Mi, 1 thread", count >> 20), 1, BestSeconds(options_, work),
        num_bytes, 0);
  };
  one_thread("fp32->fp16", 6 * bytes,
             [&] { Convert(wide_span, DType::kF32, narrow_span, DType::kF16); });
  one_thread("fp16->fp32", 6 * bytes,
             [&] { Convert(narrow_span, DType::kF16, wide_span, DType::kF32); });
  one_thread("fp32->bf16", 6 * bytes,
             [&] { Convert(wide_span, DType::kF32, narrow_span, DType::kBF16); });
  one_thread("find fp16", 2 * bytes, [&] { FindNonFinite(narrow_span, DType::kF16); });
  one_thread("fill fp16", 2 * bytes, [&] { FillUniform(narrow_span, DType::kF16, 1, 0, 1.0F); });
  LayerNormArgs args;
  args.x = reinterpret_cast<const float*>(wide.get());
  args.y = reinterpret_cast<float*>(wide.get());
  args.x_stride = args.y_stride = args.cols = 2048;
  args.rows = 512;
  Row("layer norm", "512 x 2048, in place", 512,
      BestSeconds(options_, [&] { LayerNorm(args, pool_, options_.isa); }), 512 * 2048 * 8, 0);
}

[[noreturn]] void RefuseWords(const std::string& flag, const std::string& value) {
  fmt::print(stderr, "kernel_bench: {} {}: not understood, or not on this machine\n", flag, value);
  std::exit(2);
}

Isa IsaNamed(const std::string& name) {
  for (const Isa isa : SupportedIsas()) {
    if (IsaName(isa) == name) return isa;
  }
  RefuseWords("--isa", name);
}

int NumThreadsOf(const std::string& text) {
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || *end != '\0' || count < 1) RefuseWords("--threads", text);
  return count;
}

Options ReadOptions(int argc, char** argv) {
  constexpr std::array kParts = {"matmul", "attention", "budget", "bookkeeping", "other"};
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (flag == "--quick") {
      options.quick = true;
    } else if (flag == "--no-torch") {
      options.torch = false;
    } else if (flag == "--only") {
      options.only = value();
      if (std::ranges::find(kParts, options.only) == kParts.end()) RefuseWords(flag, options.only);
    } else if (flag == "--bf16") {
      options.isa = BestIsa(CpuCompute::kBf16);
    } else if (flag == "--threads") {
      options.num_threads = NumThreadsOf(value());
    } else if (flag == "--isa") {
      options.isa = IsaNamed(value());
    } else {
      RefuseWords(flag, "");
    }
  }
  return options;
}

}  // namespace
}  // namespace spillway::kernels

int main(int argc, char** argv) {
  spillway::kernels::Bench bench(spillway::kernels::ReadOptions(argc, argv));
  bench.Matmuls();
  bench.Attentions();
  bench.Budgets();
  bench.Bookkeepings();
  bench.Others();
  return 0;
}
