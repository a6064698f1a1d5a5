#include <algorithm>
#include <vector>

#include "kernels/attention/kv_compact.h"
#include "kernels/kv/kv_eviction.h"
#include "kernels/kv/kv_head.h"

namespace spillway::kernels {
namespace {

struct Token {
  int64_t position;
  float score;
};

std::vector<Token> AllTokens(const KvCompactArgs& args, const KvCompactRow& row, int64_t kv_head) {
  const int64_t group = args.num_heads / args.num_kv_heads;
  std::vector<Token> tokens;
  for (int64_t position = 0; position < row.num_tokens; ++position) {
    float score = 0;
    for (int64_t head = kv_head * group; row.token_scores && head < (kv_head + 1) * group; ++head)
      score += row.token_scores[head * args.token_scores_stride + position];
    tokens.push_back({position, score});
  }
  return tokens;
}

bool IsHeavier(const Token& a, const Token& b) {
  return OrderedScore(a.score) > OrderedScore(b.score);
}

// Removes the tokens that do not stay; the others end up in order of position.
void KeepSome(std::vector<Token>& tokens, KvKeep kept) {
  if (static_cast<int64_t>(tokens.size()) <= kept.slots()) return;
  const auto first = tokens.begin() + kept.sinks;
  const auto last = tokens.end() - kept.recent;
  const auto first_seen = std::max(first, tokens.begin() + FirstSeen(kept, std::ssize(tokens)));
  std::stable_sort(first_seen, last, IsHeavier);
  tokens.erase(first_seen + kept.heavy, last);
  tokens.erase(first, first_seen);
  std::sort(tokens.begin(), tokens.end(),
            [](const Token& a, const Token& b) { return a.position < b.position; });
}

}  // namespace

void KvCompactRef(const KvCompactArgs& args) {
  const int64_t from_block = KvBlockBytes(args.num_kv_heads, args.head_dim, args.kv_bits);
  const int64_t heads = args.RunHeads();
  const int64_t to_block =
      KvBlockBytesWithState(heads, args.head_dim, args.kv_bits) + args.kv_block_fill;
  for (const KvCompactRow& row : args.rows) {
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t kv_head = row.kv_head + head;
      const auto head_at = [&](const std::byte* kv) {
        return KvHead<const std::byte>{kv,      args.num_kv_heads, args.head_dim,
                                       kv_head, from_block,        args.kv_bits};
      };
      const KvHead<std::byte> to{row.kv, heads, args.head_dim, head, to_block, args.kv_bits};
      std::vector<Token> tokens = AllTokens(args, row, kv_head);
      KeepSome(tokens, KeptTokens(args.kind, row.keep));
      for (size_t slot = 0; slot < tokens.size(); ++slot) {
        const auto at = static_cast<int64_t>(slot);
        const int64_t position = tokens[slot].position;
        position < row.prefix_tokens
            ? CopyToken(head_at(row.prefix), position, to, at)
            : CopyToken(head_at(row.from), position - row.prefix_tokens, to, at);
        *to.Score(at) = tokens[slot].score;
        *to.Position(at) = static_cast<int32_t>(tokens[slot].position);
      }
    }
  }
}

}  // namespace spillway::kernels
