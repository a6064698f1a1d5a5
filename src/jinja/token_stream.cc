#include "src/jinja/token_stream.h"

#include <fmt/format.h>

#include "src/jinja/values/fault.h"

namespace spillway::jinja {

Token TokenStream::Take() {
  Token token = now();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenStream::SkipName(std::string_view name) {
  if (!IsName(name)) return false;
  Take();
  return true;
}

bool TokenStream::SkipOperator(std::string_view text) {
  if (!IsOperator(text)) return false;
  Take();
  return true;
}

std::string TokenStream::ExpectName() {
  if (!Is(TokenKind::kName)) FailExpecting("a name");
  return Take().text;
}

void TokenStream::ExpectName(std::string_view name) {
  if (!SkipName(name)) FailExpecting(fmt::format("'{}'", name));
}

void TokenStream::ExpectOperator(std::string_view text) {
  if (!SkipOperator(text)) FailExpecting(fmt::format("'{}'", text));
}

void TokenStream::Expect(TokenKind kind, std::string_view called) {
  if (!Is(kind)) FailExpecting(called);
  Take();
}

void TokenStream::FailExpecting(std::string_view what) const {
  throw Fault(fmt::format("expected {}, got {}", what, Described(now())), line());
}

}  // namespace spillway::jinja
