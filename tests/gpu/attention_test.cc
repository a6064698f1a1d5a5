// Append, prefill, decode and token scores on the GPU against AttentionRefUnrounded.
#include "kernels/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/attention/decode_attention.h"
#include "kernels/attention/kv_append.h"
#include "kernels/attention/prefill_attention.h"
#include "spillway/round.h"
#include "src/gpu/attention_lists.h"
#include "tests/gpu/gpu_test_util.h"
#include "tests/kernels/kernel_test_util.h"
#include "tests/kernels/mean_table.h"
#include "tests/kernels/turn_table.h"
#include "tests/trace_case.h"

namespace spillway::kernels {
namespace {

struct Heads {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;

  int64_t q_width() const { return num_heads * head_dim; }
  int64_t kv_width() const { return num_kv_heads * head_dim; }
  int64_t stride() const { return q_width() + 2 * kv_width() + 3; }
};

// Fewer shapes in software, where a block is hundreds of fibers.
#if defined(SPILLWAY_SOFT_GPU)
constexpr Heads kHeads[] = {{1, 1, 80}, {1, 1, 128}, {1, 1, 256}, {5, 1, 24}, {4, 2, 64}};
#else
constexpr Heads kHeads[] = {{4, 4, 64}, {3, 3, 80}, {2, 2, 128}, {8, 2, 64},
                            {5, 1, 24}, {6, 1, 16}, {4, 2, 256}};
#endif

// Heads that case `number` is tried with: two in turn where a GPU in software is slow.
std::vector<Heads> HeadsOf([[maybe_unused]] size_t number) {
#if defined(SPILLWAY_SOFT_GPU)
  const size_t count = std::size(kHeads);
  return {kHeads[number % count], kHeads[(number + 2) % count]};
#else
  return {std::begin(kHeads), std::end(kHeads)};
#endif
}

// Tokens [past, past + count) of a sequence.
struct Part {
  size_t sequence;
  int64_t past;
  int64_t count;
};

enum class Where { kOracle, kGpu };

// What a model's attention may do beside the plain softmax.
struct Form {
  int64_t window = 0;
  float soft_cap = 0.0F;
  std::vector<float> sinks = {};     // [num_heads]; or none
  const TurnTable* turns = nullptr;  // of a rolling cache
  const MeanTable* means = nullptr;  // of centred keys
};

// Sequences with all their tokens' q, k and v, and their caches on host and GPU.
class Sequences {
 public:
  Sequences(Heads heads, KvStorage storage, std::vector<int64_t> lengths, Stream& stream,
            Form form = {})
      : heads_(heads),
        storage_(storage),
        lengths_(std::move(lengths)),
        stream_(stream),
        form_(form) {
    for (size_t i = 0; i < lengths_.size(); ++i) {
      qkv_.push_back(RandomFloats(lengths_[i] * heads.stride(), static_cast<uint32_t>(100 + i)));
      const auto bytes = static_cast<size_t>(Slots(i) * SlotBytes());
      caches_.emplace_back(bytes, std::byte{0xFF});
      gpu_caches_.push_back(std::make_unique<GpuArray<std::byte>>(caches_.back(), stream));
      scores_.emplace_back(static_cast<size_t>(heads.num_heads * kScoreStride), 0.0F);
      gpu_scores_.push_back(std::make_unique<GpuArray<float>>(scores_.back(), stream));
    }
  }

  // Outputs of one call over `parts`, [tokens, q_width].
  std::vector<float> Run(const std::vector<Part>& parts, Where where) {
    std::vector<float> qkv;
    std::vector<AttentionRow> rows;
    AttentionLists lists({100, 10000, 100000});
    int64_t num_tokens = 0;
    for (const Part& part : parts) {
      const auto from = qkv_[part.sequence].begin() + part.past * heads_.stride();
      qkv.insert(qkv.end(), from, from + part.count * heads_.stride());
      std::byte* kv =
          where == Where::kGpu ? gpu_caches_[part.sequence]->data() : caches_[part.sequence].data();
      float* scores =
          where == Where::kGpu ? gpu_scores_[part.sequence]->data() : scores_[part.sequence].data();
      const AttentionRow row = {kv,         Slots(part.sequence), part.past,
                                part.count, num_tokens,           scores};
      const bool decodes = part.past > 0 && part.count == 1;
      rows.push_back(row);
      if (decodes || prefix_slots_ > 0) rows.back().token_scores = nullptr;
      if (prefix_slots_ > 0) {
        rows.back().prefix = gpu_prefix_->data();
        rows.back().prefix_slots = prefix_slots_;
      }
      lists.Add(rows.back(), decodes ? RowPhase::kDecode : RowPhase::kPrompt);
      num_tokens += part.count;
    }
    std::vector<float> out(static_cast<size_t>(num_tokens * heads_.q_width()), kPoison);
    if (where == Where::kOracle) {
      AttentionArgs args = OracleArgs(qkv, out);
      args.rows = rows;
      AttentionRefUnrounded(args);
      return out;
    }
    GpuArray<float> gpu_qkv(qkv, stream_);
    GpuArray<float> gpu_out(out, stream_);
    GpuArray<AttentionRow> gpu_rows(lists.rows(), stream_);
    GpuArray<RowTile> tiles(lists.tiles(), stream_);
    GpuArray<RowTile> gpu_key_tiles(lists.key_tiles(), stream_);
    GpuArray<DecodeItem> items(lists.items(), stream_);
    GpuArray<float> partials(
        std::vector<float>(lists.items().size() *
                           static_cast<size_t>(PartialFloats(heads_.num_heads, heads_.head_dim))),
        stream_);
    GpuArray<float> log_sums(
        std::vector<float>(static_cast<size_t>(num_tokens * heads_.num_heads), kPoison), stream_);
    GpuArray<float> gpu_sinks(form_.sinks, stream_);
    const float* sinks = form_.sinks.empty() ? nullptr : gpu_sinks.data();
    GpuArray<float> table(form_.turns == nullptr ? std::vector<float>() : form_.turns->table,
                          stream_);
    KeyTurns turns;
    if (form_.turns != nullptr) {
      turns = form_.turns->turns();
      turns.table = table.data();
    }
    GpuArray<float> mean_table(
        form_.means == nullptr ? std::vector<float>() : form_.means->OnGpu(heads_.head_dim),
        stream_);
    KeyMeans means;
    if (form_.means != nullptr) means = {mean_table.data(), form_.means->num_spans};
    const KvLayout layout =
        FullKvLayout(heads_.num_kv_heads, heads_.head_dim, storage_.bits, BlockFill());
    const float* q = gpu_qkv.data();
    KvAppendAsync(
        {q + heads_.q_width(), q + heads_.q_width() + heads_.kv_width(), heads_.stride(),
         num_tokens, gpu_rows.data(), static_cast<int64_t>(rows.size()), layout, storage_.dtype},
        stream_);
    const PrefillAttentionArgs prefill = {q,
                                          heads_.stride(),
                                          gpu_out.data(),
                                          heads_.q_width(),
                                          log_sums.data(),
                                          gpu_rows.data(),
                                          tiles.data(),
                                          static_cast<int64_t>(lists.tiles().size()),
                                          heads_.num_heads,
                                          layout,
                                          Scale(),
                                          form_.soft_cap,
                                          sinks,
                                          form_.window,
                                          storage_.dtype,
                                          turns,
                                          means};
    PrefillAttentionAsync(prefill, stream_);
    PrefillScoresAsync({prefill, gpu_key_tiles.data(),
                        static_cast<int64_t>(lists.key_tiles().size()), kScoreStride},
                       stream_);
    DecodeAttentionAsync(
        {q, heads_.stride(), gpu_out.data(), heads_.q_width(), gpu_rows.data(), items.data(),
         static_cast<int64_t>(lists.items().size()), partials.data(), heads_.num_heads, layout,
         Scale(), form_.soft_cap, sinks, storage_.dtype, means},
        stream_);
    return gpu_out.Download();
  }

  // Gives all sequences the first tokens of the first one.
  void BeginAlike(int64_t num_tokens) {
    for (std::vector<float>& qkv : qkv_)
      std::copy_n(qkv_[0].begin(), num_tokens * heads_.stride(), qkv.begin());
  }
  // Gives the first slots, in which all sequences have the same, a place of their own on the GPU.
  void TakePrefix(int64_t num_slots) {
    prefix_slots_ = num_slots;
    const auto bytes = static_cast<std::ptrdiff_t>(num_slots * SlotBytes());
    for (std::unique_ptr<GpuArray<std::byte>>& cache : gpu_caches_) {
      const std::vector<std::byte> whole = cache->Download();
      const std::vector<std::byte> prefix(whole.begin(), whole.begin() + bytes);
      if (gpu_prefix_ == nullptr)
        gpu_prefix_ = std::make_unique<GpuArray<std::byte>>(prefix, stream_);
      cache = std::make_unique<GpuArray<std::byte>>(
          std::vector<std::byte>(whole.begin() + bytes, whole.end()), stream_);
    }
  }

  const std::vector<std::byte>& Cache(size_t sequence, Where where) {
    return where == Where::kGpu ? gpu_caches_[sequence]->Download() : caches_[sequence];
  }
  const std::vector<float>& Scores(size_t sequence, Where where) {
    return where == Where::kGpu ? gpu_scores_[sequence]->Download() : scores_[sequence];
  }

  static constexpr int64_t kScoreStride = 1200;

 private:
  int64_t Slots(size_t sequence) const {
    return RoundUp(lengths_[sequence], KvBlockSlots(storage_.bits));
  }
  int64_t BlockFill() const { return std::ssize(lengths_) % 2 * 96; }
  int64_t SlotBytes() const {
    return KvSlotBytes(heads_.num_kv_heads, heads_.head_dim, storage_.bits) +
           BlockFill() / KvBlockSlots(storage_.bits);
  }
  float Scale() const { return 1.0F / std::sqrt(static_cast<float>(heads_.head_dim)); }
  AttentionArgs OracleArgs(const std::vector<float>& qkv, std::vector<float>& out) const {
    AttentionArgs args;
    args.q = qkv.data();
    args.k = args.q + heads_.q_width();
    args.v = args.k + heads_.kv_width();
    args.qkv_stride = heads_.stride();
    args.out = out.data();
    args.out_stride = heads_.q_width();
    args.num_heads = heads_.num_heads;
    args.num_kv_heads = heads_.num_kv_heads;
    args.head_dim = heads_.head_dim;
    args.scale = Scale();
    args.soft_cap = form_.soft_cap;
    args.sinks = form_.sinks.empty() ? nullptr : form_.sinks.data();
    args.window = form_.window;
    args.kv_dtype = storage_.dtype;
    args.kv_bits = storage_.bits;
    args.kv_block_fill = BlockFill();
    args.token_scores_stride = kScoreStride;
    if (form_.turns != nullptr) args.turns = form_.turns->turns();
    if (form_.means != nullptr) args.means = form_.means->means();
    return args;
  }

  Heads heads_;
  KvStorage storage_;
  std::vector<int64_t> lengths_;
  Stream& stream_;
  Form form_;
  std::vector<std::vector<float>> qkv_;  // [sequence][token][q | k | v]
  std::vector<std::vector<std::byte>> caches_;
  std::vector<std::unique_ptr<GpuArray<std::byte>>> gpu_caches_;
  std::unique_ptr<GpuArray<std::byte>> gpu_prefix_;
  int64_t prefix_slots_ = 0;
  std::vector<std::vector<float>> scores_;
  std::vector<std::unique_ptr<GpuArray<float>>> gpu_scores_;
};

void ExpectNear(const std::vector<float>& a, const std::vector<float>& b, float bound) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t at = 0; at < a.size(); ++at) ASSERT_NEAR(a[at], b[at], bound) << at;
}

class GpuAttentionTest : public GpuTest {
 protected:
  void CompareInChunks(const KvStorage& storage, const Form& form);
  void CompareAlone(const KvStorage& storage);
  // Lengths at the edges of blocks, tiles and splits.
  static std::vector<int64_t> Lengths() {
#if defined(SPILLWAY_SOFT_GPU)
    return {1, 17, 64, 130, 257};
#else
    return {1, 2, 15, 16, 17, 63, 64, 65, 130, 255, 256, 257, 600, 1025};
#endif
  }
  static std::vector<Part> Whole(const std::vector<int64_t>& lengths) {
    std::vector<Part> parts;
    for (size_t i = 0; i < lengths.size(); ++i) parts.push_back({i, 0, lengths[i]});
    return parts;
  }
  static float Bound(const KvStorage& storage) {
    return storage.dtype == DType::kF16 ? 3e-3F : 3e-2F;
  }
};

TEST_F(GpuAttentionTest, PrefillAgreesWithTheOracle) {
  size_t number = 0;
  for (const KvStorage& storage : kKvStorages) {
    for (const Heads& heads : HeadsOf(number++)) {
      SCOPED_TRACE(storage.name() + ", head_dim " + std::to_string(heads.head_dim));
      const std::vector<int64_t> lengths = Lengths();
      Sequences sequences(heads, storage, lengths, stream());
      const std::vector<float> expected = sequences.Run(Whole(lengths), Where::kOracle);
      ExpectNear(sequences.Run(Whole(lengths), Where::kGpu), expected, Bound(storage));
      for (size_t i = 0; i < lengths.size(); ++i) {
        EXPECT_EQ(sequences.Cache(i, Where::kGpu), sequences.Cache(i, Where::kOracle)) << i;
        ExpectNear(sequences.Scores(i, Where::kGpu), sequences.Scores(i, Where::kOracle),
                   Bound(storage) * 10.0F);
      }
    }
  }
}

TEST_F(GpuAttentionTest, TurnedKeysAgreeWithTheOracle) {
  size_t number = 0;
  for (const KvStorage& storage : kKvStorages) {
    for (const Heads& heads : HeadsOf(number++)) {
      SCOPED_TRACE(storage.name() + ", head_dim " + std::to_string(heads.head_dim));
      const RopePairs pairs = number % 2 == 0 ? RopePairs::kHalves : RopePairs::kNeighbours;
      const TurnTable table(1025, heads.head_dim / 4 * 2, pairs);
      const std::vector<int64_t> lengths = Lengths();
      Sequences sequences(heads, storage, lengths, stream(), {.turns = &table});
      const std::vector<float> expected = sequences.Run(Whole(lengths), Where::kOracle);
      ExpectNear(sequences.Run(Whole(lengths), Where::kGpu), expected, 2.0F * Bound(storage));
      for (size_t i = 0; i < lengths.size(); ++i) {
        EXPECT_EQ(sequences.Cache(i, Where::kGpu), sequences.Cache(i, Where::kOracle)) << i;
        ExpectNear(sequences.Scores(i, Where::kGpu), sequences.Scores(i, Where::kOracle),
                   Bound(storage) * 20.0F);
      }
    }
  }
}

// In prompts, and in a step behind each.
TEST_F(GpuAttentionTest, CentredKeysAgreeWithTheOracle) {
  size_t number = 0;
  for (const KvStorage& storage : kKvStorages) {
    for (const Heads& heads : HeadsOf(number++)) {
      if (storage.bits.key != 4) continue;
      SCOPED_TRACE(storage.name() + ", head_dim " + std::to_string(heads.head_dim));
      const MeanTable table(1025, heads.num_kv_heads, heads.head_dim);
      const std::vector<int64_t> lengths = Lengths();
      Sequences sequences(heads, storage, lengths, stream(), {.means = &table});
      std::vector<Part> prompts;
      std::vector<Part> steps;
      for (size_t i = 0; i < lengths.size(); ++i) {
        prompts.push_back({i, 0, std::max<int64_t>(1, lengths[i] - 1)});
        if (lengths[i] > 1) steps.push_back({i, lengths[i] - 1, 1});
      }
      for (const std::vector<Part>& parts : {prompts, steps}) {
        const std::vector<float> expected = sequences.Run(parts, Where::kOracle);
        ExpectNear(sequences.Run(parts, Where::kGpu), expected, 3.0F * Bound(storage));
      }
      for (size_t i = 0; i < lengths.size(); ++i) {
        EXPECT_EQ(sequences.Cache(i, Where::kGpu), sequences.Cache(i, Where::kOracle)) << i;
        ExpectNear(sequences.Scores(i, Where::kGpu), sequences.Scores(i, Where::kOracle),
                   Bound(storage) * 30.0F);
      }
    }
  }
}

TEST_F(GpuAttentionTest, WindowsAndSoftCapsAgreeWithTheOracle) {
  const KvStorage storage = kKvStorages[0];
  for (const Heads& heads : {Heads{4, 2, 64}, Heads{1, 1, 256}}) {
    for (const Form& form : {Form{2, 0.0F}, Form{40, 1.0F}, Form{64, 0.0F}, Form{130, 0.5F}}) {
      SCOPED_TRACE(CaseOf("head_dim", heads.head_dim, "window", form.window));
      const std::vector<int64_t> lengths = {1, 17, 64, 130, 257};
      Sequences sequences(heads, storage, lengths, stream(), form);
      const std::vector<float> expected = sequences.Run(Whole(lengths), Where::kOracle);
      ExpectNear(sequences.Run(Whole(lengths), Where::kGpu), expected, Bound(storage));
      for (size_t i = 0; i < lengths.size(); ++i) {
        ExpectNear(sequences.Scores(i, Where::kGpu), sequences.Scores(i, Where::kOracle),
                   Bound(storage) * 10.0F);
      }
    }
  }
}

// Rows that decode lie within the window; scores are capped.
TEST_F(GpuAttentionTest, DecodeCapsScores) {
  Sequences sequences({4, 2, 64}, kKvStorages[0], {40}, stream(), {64, 0.5F});
  for (const Where where : {Where::kOracle, Where::kGpu}) sequences.Run({{0, 0, 39}}, where);
  const std::vector<float> expected = sequences.Run({{0, 39, 1}}, Where::kOracle);
  ExpectNear(sequences.Run({{0, 39, 1}}, Where::kGpu), expected, Bound(kKvStorages[0]));
}

TEST_F(GpuAttentionTest, DecodeAgreesWithTheOracle) {
  size_t number = 0;
  for (const KvStorage& storage : kKvStorages) {
    for (const Heads& heads : HeadsOf(number++)) {
      SCOPED_TRACE(storage.name() + ", head_dim " + std::to_string(heads.head_dim));
      const std::vector<int64_t> lengths = Lengths();
      Sequences sequences(heads, storage, lengths, stream());
      std::vector<Part> prompts;
      std::vector<Part> steps;
      for (size_t i = 0; i < lengths.size(); ++i) {
        if (lengths[i] == 1) continue;
        prompts.push_back({i, 0, lengths[i] - 1});
        steps.push_back({i, lengths[i] - 1, 1});
      }
      for (const Where where : {Where::kOracle, Where::kGpu}) sequences.Run(prompts, where);
      const std::vector<float> expected = sequences.Run(steps, Where::kOracle);
      ExpectNear(sequences.Run(steps, Where::kGpu), expected, Bound(storage));
    }
  }
}

// Sinks below and above the scores, in prompts, and in steps of one split and of two.
TEST_F(GpuAttentionTest, SinksAgreeWithTheOracle) {
  const KvStorage storage = kKvStorages[0];
  const std::vector<float> sinks = {-1.0F, 3.0F, 0.5F, 1.5F};
  for (const Form& form : {Form{0, 0.0F, sinks}, Form{40, 0.0F, sinks}}) {
    SCOPED_TRACE(CaseOf("window", form.window));
    const std::vector<int64_t> lengths = {17, 40, 130, 300};
    Sequences sequences({4, 2, 64}, storage, lengths, stream(), form);
    const std::vector<float> expected = sequences.Run(Whole(lengths), Where::kOracle);
    ExpectNear(sequences.Run(Whole(lengths), Where::kGpu), expected, Bound(storage));
    for (size_t i = 0; i < lengths.size(); ++i) {
      ExpectNear(sequences.Scores(i, Where::kGpu), sequences.Scores(i, Where::kOracle),
                 Bound(storage) * 10.0F);
    }
    if (form.window > 0) continue;
    std::vector<Part> steps;
    for (size_t i = 0; i < lengths.size(); ++i) steps.push_back({i, lengths[i] - 1, 1});
    const std::vector<float> step = sequences.Run(steps, Where::kOracle);
    ExpectNear(sequences.Run(steps, Where::kGpu), step, Bound(storage));
  }
}

// The bits are those of rows that hold all of their tokens.
TEST_F(GpuAttentionTest, APrefixInAPlaceOfItsOwnChangesNoBit) {
  constexpr int64_t kPrefix = 192;
  size_t number = 0;
  for (const KvStorage& storage : kKvStorages) {
    for (const Heads& heads : HeadsOf(number++)) {
      SCOPED_TRACE(storage.name() + ", head_dim " + std::to_string(heads.head_dim));
      const std::vector<int64_t> lengths = {kPrefix + 2, kPrefix + 65, kPrefix + 130};
      std::vector<Part> prefixes;
      std::vector<Part> prompts;
      std::vector<Part> steps;
      for (size_t i = 0; i < lengths.size(); ++i) {
        prefixes.push_back({i, 0, kPrefix});
        prompts.push_back({i, kPrefix, lengths[i] - kPrefix - 1});
        steps.push_back({i, lengths[i] - 1, 1});
      }
      Sequences whole(heads, storage, lengths, stream());
      Sequences apart(heads, storage, lengths, stream());
      for (Sequences* sequences : {&whole, &apart}) {
        sequences->BeginAlike(kPrefix);
        sequences->Run(prefixes, Where::kGpu);
      }
      apart.TakePrefix(kPrefix);
      for (const std::vector<Part>& parts : {prompts, steps})
        ASSERT_EQ(Bits(apart.Run(parts, Where::kGpu)), Bits(whole.Run(parts, Where::kGpu)));
    }
  }
}

// Chunks of a prompt and the rows beside it change no bit of a row: neither output nor scores.
void GpuAttentionTest::CompareInChunks(const KvStorage& storage, const Form& form) {
  const Heads heads = {4, 2, 64};
  const std::vector<int64_t> lengths = {170, 77, 200};
  Sequences together(heads, storage, lengths, stream(), form);
  const std::vector<float> all = together.Run(Whole(lengths), Where::kGpu);
  Sequences apart(heads, storage, lengths, stream(), form);
  std::vector<float> in_chunks;
  for (int64_t past = 0; past < lengths[0]; past += 70) {
    const int64_t count = std::min<int64_t>(70, lengths[0] - past);
    const std::vector<float> chunk = apart.Run({{0, past, count}}, Where::kGpu);
    in_chunks.insert(in_chunks.end(), chunk.begin(), chunk.end());
  }
  EXPECT_EQ(Bits(in_chunks), Bits(std::span(all).first(in_chunks.size())));
  EXPECT_EQ(Bits(apart.Scores(0, Where::kGpu)), Bits(together.Scores(0, Where::kGpu)));
}

TEST_F(GpuAttentionTest, ARowsBitsDependOnTheRowOnly) {
  for (const KvStorage& storage : kKvStorages) CompareInChunks(storage, {});
  CompareInChunks(kKvStorages[0], {50, 1.0F});
}

void GpuAttentionTest::CompareAlone(const KvStorage& storage) {
  const Heads heads = {2, 2, 128};
  const std::vector<int64_t> lengths = {150, 40, 290};
  const std::vector<Part> prompts = {{0, 0, 149}, {1, 0, 39}, {2, 0, 289}};
  Sequences together(heads, storage, lengths, stream());
  together.Run(prompts, Where::kGpu);
  const std::vector<float> all = together.Run({{0, 149, 1}, {1, 39, 1}, {2, 289, 1}}, Where::kGpu);
  Sequences alone(heads, storage, lengths, stream());
  alone.Run(prompts, Where::kGpu);
  const std::vector<float> last = alone.Run({{2, 289, 1}}, Where::kGpu);
  EXPECT_EQ(Bits(last), Bits(std::span(all).last(last.size())));
}

TEST_F(GpuAttentionTest, ADecodeStepsBitsDependOnTheRowOnly) {
  for (const KvStorage& storage : kKvStorages) CompareAlone(storage);
}

}  // namespace
}  // namespace spillway::kernels
