#include "src/tokenizer/bpe_model.h"

#include <fmt/format.h>

#include <bit>
#include <iterator>
#include <queue>
#include <stdexcept>

#include "spillway/error.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

constexpr char32_t kNumLow = 0x200;           // holds the byte alphabet
constexpr uint64_t kEmptyKey = ~uint64_t{0};  // ids are non-negative: no pair has this key
constexpr int32_t kNone = -1;

uint64_t PairKey(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// A token of the word so far, linked to its neighbours; `id` is kNone once it was joined to its
// left neighbour.
struct Symbol {
  TokenId id;
  int32_t previous;
  int32_t next;
};

// The tokens of one word. Positions are those of its characters.
class SymbolChain {
 public:
  explicit SymbolChain(const std::vector<TokenId>& characters) {
    const auto size = static_cast<int32_t>(characters.size());
    symbols_.reserve(characters.size());
    for (int32_t i = 0; i < size; ++i) {
      symbols_.push_back(
          {characters[static_cast<std::size_t>(i)], i - 1, i + 1 < size ? i + 1 : kNone});
    }
  }

  const Symbol& At(int32_t at) const { return symbols_[static_cast<std::size_t>(at)]; }

  // Makes one token of the symbol at `left` and its right neighbour.
  void Join(int32_t left, TokenId merged) {
    Symbol& first = symbols_[static_cast<std::size_t>(left)];
    Symbol& second = symbols_[static_cast<std::size_t>(first.next)];
    first.id = merged;
    first.next = second.next;
    second.id = kNone;
    if (first.next != kNone) symbols_[static_cast<std::size_t>(first.next)].previous = left;
  }

  void AppendTo(std::vector<TokenId>& out) const {
    for (const Symbol& symbol : symbols_) {
      if (symbol.id != kNone) out.push_back(symbol.id);
    }
  }

 private:
  std::vector<Symbol> symbols_;
};

struct Candidate {
  uint32_t rank;
  int32_t left;  // position of the left symbol
  TokenId merged;
};

// The lowest rank first, then the leftmost.
struct Later {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }
};

}  // namespace

void BpeModel::RuleTable::Reserve(std::size_t num_rules) {
  slots_.assign(std::bit_ceil(num_rules * 2 + 2), Slot{kEmptyKey, {}});
}

std::size_t BpeModel::RuleTable::SlotOf(uint64_t key) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> 20) & mask;
  while (slots_[at].key != key && slots_[at].key != kEmptyKey) at = (at + 1) & mask;
  return at;
}

void BpeModel::RuleTable::Set(TokenId left, TokenId right, Rule rule) {
  const uint64_t key = PairKey(left, right);
  slots_[SlotOf(key)] = {key, rule};
}

const BpeModel::Rule* BpeModel::RuleTable::Find(TokenId left, TokenId right) const {
  const Slot& slot = slots_[SlotOf(PairKey(left, right))];
  return slot.key == kEmptyKey ? nullptr : &slot.rule;
}

BpeModel::BpeModel(StringMap<TokenId> vocabulary, const std::vector<Merge>& merges,
                   BpeOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  if (options_.unknown) {
    const auto id = Find(*options_.unknown);
    if (!id)
      throw std::invalid_argument(
          fmt::format("the unknown token \"{}\" has no id", Printable(*options_.unknown)));
    unknown_ = *id;
  }
  if (options_.byte_fallback) {
    for (int byte = 0; byte < 256; ++byte)
      byte_tokens_.push_back(Find(fmt::format("<0x{:02X}>", byte)).value_or(kNone));
  }
  for (char32_t c = 0; c < kNumLow; ++c) {
    std::string character;
    AppendCodePoint(c, character);
    low_characters_.push_back(Find(character).value_or(kNone));
  }
  AddRules(merges);
}

std::optional<TokenId> BpeModel::Find(std::string_view token) const {
  const auto entry = vocabulary_.find(token);
  if (entry == vocabulary_.end()) return std::nullopt;
  return entry->second;
}

TokenId BpeModel::IdOf(const std::string& token, std::size_t merge_line) const {
  const auto id = Find(token);
  if (!id)
    throw std::invalid_argument(fmt::format("merge {} needs the token \"{}\", which has no id",
                                            merge_line, Printable(token)));
  return *id;
}

void BpeModel::AddRules(const std::vector<Merge>& merges) {
  rules_.Reserve(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto& [left, right] = merges[i];
    const TokenId left_id = IdOf(left, i + 1);
    const TokenId right_id = IdOf(right, i + 1);
    rules_.Set(left_id, right_id, {static_cast<uint32_t>(i), IdOf(left + right, i + 1)});
  }
}

bool BpeModel::AppendByteTokens(std::string_view character, std::vector<TokenId>& out) const {
  if (!options_.byte_fallback) return false;
  for (const char byte : character) {
    if (byte_tokens_[static_cast<unsigned char>(byte)] == kNone) return false;
  }
  for (const char byte : character) out.push_back(byte_tokens_[static_cast<unsigned char>(byte)]);
  return true;
}

// The reference holds an unknown character back until the next known one, and byte tokens do not
// release it.
std::vector<TokenId> BpeModel::Characters(std::string_view word) const {
  std::vector<TokenId> out;
  out.reserve(word.size());
  bool pending_unknown = false;
  for (std::size_t at = 0; at < word.size();) {
    const CodePoint point = CodePointAt(word, at);
    const std::string_view character = word.substr(at, point.bytes);
    at += point.bytes;
    const TokenId id =
        point.value < kNumLow ? low_characters_[point.value] : Find(character).value_or(kNone);
    if (id != kNone) {
      if (pending_unknown) out.push_back(unknown_);
      pending_unknown = false;
      out.push_back(id);
    } else if (!AppendByteTokens(character, out) && options_.unknown) {
      if (pending_unknown && !options_.fuse_unknown) out.push_back(unknown_);
      pending_unknown = true;
    }
  }
  if (pending_unknown) out.push_back(unknown_);
  return out;
}

void BpeModel::Encode(std::string_view word, std::vector<TokenId>& out) const {
  if (options_.ignore_merges) {
    if (const auto id = Find(word)) {
      out.push_back(*id);
      return;
    }
  }
  Join(Characters(word), out);
}

void BpeModel::Join(const std::vector<TokenId>& characters, std::vector<TokenId>& out) const {
  SymbolChain chain(characters);
  std::vector<Candidate> candidates;
  const auto candidate = [&](int32_t left, int32_t right) -> std::optional<Candidate> {
    if (left == kNone || right == kNone) return std::nullopt;
    const Rule* rule = rules_.Find(chain.At(left).id, chain.At(right).id);
    if (rule == nullptr) return std::nullopt;
    return Candidate{rule->rank, left, rule->merged};
  };
  for (int32_t i = 0; i + 1 < std::ssize(characters); ++i) {
    if (const auto found = candidate(i, i + 1)) candidates.push_back(*found);
  }
  std::priority_queue queue(Later{}, std::move(candidates));
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const Symbol& left = chain.At(best.left);
    if (left.id == kNone || left.next == kNone) continue;
    // The pair may have changed since; the reference goes on whenever today's pair gives the same
    // token.
    const Rule* rule = rules_.Find(left.id, chain.At(left.next).id);
    if (rule == nullptr || rule->merged != best.merged) continue;
    chain.Join(best.left, best.merged);
    if (const auto found = candidate(left.previous, best.left)) queue.push(*found);
    if (const auto found = candidate(best.left, left.next)) queue.push(*found);
  }
  chain.AppendTo(out);
}

}  // namespace spillway
