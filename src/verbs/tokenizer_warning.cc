#include "src/verbs/tokenizer_warning.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "spillway/error.h"
#include "src/base/terminal.h"

namespace spillway {
namespace {

constexpr const char* kAdvice = "it may be another model's; give the model's own with --tokenizer";

// Models are padded by a few per cent.
bool IsFarSmaller(const OpenedModel& model) {
  constexpr int64_t kLeastRows = 1024;  // shapes for tests are cut down
  constexpr double kLeastShare = 0.9;
  const int64_t num_rows = model.shape.vocab_size;
  const auto least = static_cast<int64_t>(kLeastShare * static_cast<double>(num_rows));
  return num_rows >= kLeastRows && model.tokenizer->vocab_size() < least;
}

// Tells whether the token is in the vocabulary and stands for no text.
bool IsSpecial(const Tokenizer& tokenizer, TokenId id) {
  if (id < 0 || id >= tokenizer.vocab_size() || tokenizer.TokenText(id).empty()) return false;
  std::string bytes;
  tokenizer.AppendBytes(id, /*first=*/false, bytes);
  return bytes.empty();
}

}  // namespace

void WarnOfOtherTokenizer(const OpenedModel& model) {
  const Tokenizer& tokenizer = *model.tokenizer;
  if (HasDummyWeights(model) || !tokenizer.encodes_text()) return;
  const std::string folder = Printable(model.tokenizer_folder.string());
  const auto is_special = [&](TokenId id) { return IsSpecial(tokenizer, id); };
  if (IsFarSmaller(model)) {
    PrintWarning(fmt::format("{}: the tokenizer has {} ids and the model {}; {}", folder,
                             tokenizer.vocab_size(), model.shape.vocab_size, kAdvice));
  } else if (!model.shape.eos.empty() && std::ranges::none_of(model.shape.eos, is_special)) {
    const TokenId end = model.shape.eos.front();
    PrintWarning(
        fmt::format("{}: the model's end token, {}, is \"{}\" in the tokenizer and no "
                    "special token; {}",
                    folder, end, Printable(tokenizer.TokenText(end), 40), kAdvice));
  }
}

}  // namespace spillway
