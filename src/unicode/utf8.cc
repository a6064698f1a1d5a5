#include "src/unicode/utf8.h"

namespace spillway {
namespace {

struct Part {
  std::size_t bytes;
  bool valid;
};

// How many bytes follow a lead byte, and the range its second byte must lie in (Unicode table 3-7).
struct LeadRule {
  std::size_t following;
  unsigned char second_min;
  unsigned char second_max;
};

LeadRule RuleOf(unsigned char lead) {
  if (lead < 0xC2 || lead > 0xF4) return {0, 0, 0};
  if (lead < 0xE0) return {1, 0x80, 0xBF};
  if (lead < 0xF0)
    return {2, static_cast<unsigned char>(lead == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(lead == 0xED ? 0x9F : 0xBF)};
  return {3, static_cast<unsigned char>(lead == 0xF0 ? 0x90 : 0x80),
          static_cast<unsigned char>(lead == 0xF4 ? 0x8F : 0xBF)};
}

// The character at bytes[at], or the longest prefix of one, or a single byte that can start none.
Part PartAt(std::string_view bytes, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[at + i]); };
  if (byte(0) < 0x80) return {1, true};
  const LeadRule rule = RuleOf(byte(0));
  if (rule.following == 0) return {1, false};
  for (std::size_t i = 1; i <= rule.following; ++i) {
    if (at + i >= bytes.size()) return {i, false};
    const unsigned char min = i == 1 ? rule.second_min : 0x80;
    const unsigned char max = i == 1 ? rule.second_max : 0xBF;
    if (byte(i) < min || byte(i) > max) return {i, false};
  }
  return {rule.following + 1, true};
}

}  // namespace

void AppendCodePoint(char32_t value, std::string& out) {
  const auto tail = [&](unsigned shift) {
    out += static_cast<char>(0x80 | (value >> shift & 0x3F));
  };
  if (value < 0x80) {
    out += static_cast<char>(value);
  } else if (value < 0x800) {
    out += static_cast<char>(0xC0 | value >> 6);
    tail(0);
  } else if (value < 0x10000) {
    out += static_cast<char>(0xE0 | value >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | value >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

std::u32string CodePoints(std::string_view utf8) {
  std::u32string out;
  for (std::size_t at = 0; at < utf8.size();) {
    const CodePoint point = CodePointAt(utf8, at);
    out += point.value;
    at += point.bytes;
  }
  return out;
}

bool IsValidUtf8(std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const Part part = PartAt(bytes, at);
    if (!part.valid) return false;
    at += part.bytes;
  }
  return true;
}

std::string ReplaceInvalidUtf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const Part part = PartAt(bytes, at);
    out += part.valid ? bytes.substr(at, part.bytes) : std::string_view("\xEF\xBF\xBD");
    at += part.bytes;
  }
  return out;
}

}  // namespace spillway
