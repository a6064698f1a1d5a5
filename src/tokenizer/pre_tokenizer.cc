#include "src/tokenizer/pre_tokenizer.h"

#include "src/tokenizer/byte_alphabet.h"
#include "src/tokenizer/normalizer.h"
#include "src/unicode/char_class.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

// A pattern that covers every text and keeps every match apart needs no list of parts.
void SplitApart(SplitPattern pattern, std::string_view piece, Pieces& out) {
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t end = MatchEnd(pattern, piece, at);
    out.text += piece.substr(at, end - at);
    out.End();
    at = end;
  }
}

void Apply(const SplitStep& step, std::string_view piece, bool opens_text, Pieces& out) {
  const auto* pattern = std::get_if<SplitPattern>(&step.target);
  const bool keeps_apart = step.inverted ? step.behavior == SplitBehavior::kRemoved
                                         : step.behavior == SplitBehavior::kIsolated;
  if (pattern != nullptr && keeps_apart) return SplitApart(*pattern, piece, out);
  const std::vector<std::string_view> parts = SplitText(step, piece);
  if (opens_text && (parts.empty() || parts.front().data() != piece.data())) out.lost_start = true;
  for (const std::string_view part : parts) {
    out.text += part;
    out.End();
  }
}

void Apply(const ByteLevelStep& step, std::string_view piece, bool, Pieces& out) {
  std::string prefixed;
  if (step.add_prefix_space && !piece.starts_with(' ')) {
    prefixed.append(" ").append(piece);
    piece = prefixed;
  }
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t end =
        step.use_regex ? MatchEnd(SplitPattern::kGpt2, piece, at) : piece.size();
    AppendInByteAlphabet(piece.substr(at, end - at), out.text);
    out.End();
    at = end;
  }
}

void Apply(const DigitsStep& step, std::string_view piece, bool, Pieces& out) {
  bool in_digits = false;
  for (std::size_t at = 0; at < piece.size();) {
    const CodePoint point = CodePointAt(piece, at);
    const bool is_digit = IsDigitsChar(point.value);
    if (is_digit != in_digits || (is_digit && step.individual)) out.End();
    in_digits = is_digit;
    out.text += piece.substr(at, point.bytes);
    at += point.bytes;
  }
  out.End();
}

void Apply(const MetaspaceStep& step, std::string_view piece, bool opens_text, Pieces& out) {
  using Prepend = MetaspaceStep::Prepend;
  const bool wanted =
      step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && opens_text);
  const auto is_space = [&](char32_t c) { return c == U' ' || c == step.replacement; };
  if (wanted && !piece.empty() && !is_space(CodePointAt(piece, 0).value))
    AppendCodePoint(step.replacement, out.text);
  for (std::size_t at = 0; at < piece.size();) {
    const CodePoint point = CodePointAt(piece, at);
    if (is_space(point.value)) {
      if (step.split && at > 0) out.End();
      AppendCodePoint(step.replacement, out.text);
    } else {
      out.text += piece.substr(at, point.bytes);
    }
    at += point.bytes;
  }
  out.End();
}

void Apply(const WordsStep&, std::string_view piece, bool opens_text, Pieces& out) {
  enum class Run { kSpace, kWord, kOther };
  Run last = Run::kSpace;
  for (std::size_t at = 0; at < piece.size();) {
    const CodePoint point = CodePointAt(piece, at);
    const Run run = IsWordChar(point.value)    ? Run::kWord
                    : IsStripChar(point.value) ? Run::kSpace
                                               : Run::kOther;
    if (run != last) out.End();
    if (run != Run::kSpace) out.text += piece.substr(at, point.bytes);
    if (opens_text && at == 0 && run == Run::kSpace) out.lost_start = true;
    last = run;
    at += point.bytes;
  }
  out.End();
}

}  // namespace

Pieces PreTokenize(const std::vector<PreTokenizerStep>& steps, std::string_view text,
                   bool opens_text) {
  Pieces pieces;
  pieces.text = text;
  pieces.End();
  for (const PreTokenizerStep& step : steps) {
    Pieces next;
    next.lost_start = pieces.lost_start;
    for (std::size_t i = 0; i < pieces.ends.size(); ++i) {
      const bool opens = opens_text && i == 0 && !pieces.lost_start;
      std::visit([&](const auto& kind) { Apply(kind, pieces.Piece(i), opens, next); }, step);
    }
    CheckGrowth(next.text.size(), MostBytesOf(text));
    pieces = std::move(next);
  }
  return pieces;
}

}  // namespace spillway
