#include "src/tokenizer/pre_tokenizer.h"

#include "src/tokenizer/byte_alphabet.h"
#include "src/tokenizer/unicode.h"
#include "src/tokenizer/utf8.h"

namespace spillway {
namespace {

void SplitInto(Pieces& out, SplitPattern pattern, std::string_view piece) {
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t end = MatchEnd(pattern, piece, at);
    out.text += piece.substr(at, end - at);
    out.End();
    at = end;
  }
}

void Apply(const SplitStep& step, std::string_view piece, bool, Pieces& out) {
  SplitInto(out, step.pattern, piece);
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

}  // namespace

Pieces PreTokenize(const std::vector<PreTokenizerStep>& steps, std::string_view text,
                   bool opens_text) {
  Pieces pieces;
  pieces.text = text;
  pieces.End();
  for (const PreTokenizerStep& step : steps) {
    Pieces next;
    for (std::size_t i = 0; i < pieces.ends.size(); ++i) {
      const bool opens = opens_text && i == 0;
      std::visit([&](const auto& kind) { Apply(kind, pieces.Piece(i), opens, next); }, step);
    }
    pieces = std::move(next);
  }
  return pieces;
}

}  // namespace spillway
