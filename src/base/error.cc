#include "spillway/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace spillway {
namespace {

struct CodeRow {
  ErrorCode code;
  std::string_view name;
  int exit_status;
};

// Exit statuses are those of docs/formats.md, "Exit codes and errors"; the order is the enum's.
constexpr std::array kCodes = {
    CodeRow{ErrorCode::kInternal, "E-INTERNAL", 1},
    CodeRow{ErrorCode::kFlag, "E-FLAG", 2},
    CodeRow{ErrorCode::kPolicy, "E-POLICY", 3},
    CodeRow{ErrorCode::kMachine, "E-MACHINE", 3},
    CodeRow{ErrorCode::kModelMalformed, "E-MODEL-MALFORMED", 10},
    CodeRow{ErrorCode::kModelTruncated, "E-MODEL-TRUNCATED", 10},
    CodeRow{ErrorCode::kModelUnsupported, "E-MODEL-UNSUPPORTED", 11},
    CodeRow{ErrorCode::kModelInconsistent, "E-MODEL-INCONSISTENT", 11},
    CodeRow{ErrorCode::kModelMissing, "E-MODEL-MISSING", 12},
    CodeRow{ErrorCode::kUnsafe, "E-UNSAFE", 13},
    CodeRow{ErrorCode::kTokenizer, "E-TOKENIZER", 14},
    CodeRow{ErrorCode::kInput, "E-INPUT", 20},
    CodeRow{ErrorCode::kGpuMemory, "E-GPU-MEMORY", 30},
    CodeRow{ErrorCode::kCpuMemory, "E-CPU-MEMORY", 31},
    CodeRow{ErrorCode::kDiskSpace, "E-DISK-SPACE", 32},
    CodeRow{ErrorCode::kSystemLimit, "E-SYSTEM-LIMIT", 33},
    CodeRow{ErrorCode::kIo, "E-IO", 40},
    CodeRow{ErrorCode::kCorrupt, "E-CORRUPT", 41},
    CodeRow{ErrorCode::kGpu, "E-GPU", 42},
    CodeRow{ErrorCode::kStalled, "E-STALLED", 43},
    CodeRow{ErrorCode::kNonFinite, "E-NONFINITE", 44},
    CodeRow{ErrorCode::kRunInUse, "E-RUN-IN-USE", 50},
    CodeRow{ErrorCode::kResume, "E-RESUME", 51},
    CodeRow{ErrorCode::kOutputExists, "E-OUTPUT-EXISTS", 52},
    CodeRow{ErrorCode::kPath, "E-PATH", 60},
    CodeRow{ErrorCode::kInterrupted, "E-INTERRUPTED", 75},
};

const CodeRow& Row(ErrorCode code) { return kCodes[static_cast<std::size_t>(code)]; }

constexpr std::size_t kMaxLineBytes = 300;

// The length of the valid UTF-8 sequence at text[at], 0 when there is none (RFC 3629: no overlongs,
// no surrogates).
std::size_t SequenceLength(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = byte(at + 1);
  const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool out_of_range = (lead == 0xED && second > 0x9F) || (lead == 0xF4 && second > 0x8F);
  return overlong || out_of_range ? 0 : length;
}

// Marks that turn the direction of writing (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to
// U+2069), or break the line (U+2028, U+2029): with them a name can read as another.
bool TurnsText(std::string_view sequence) {
  if (sequence == "\xD8\x9C") return true;
  if (sequence.size() != 3 || sequence[0] != '\xE2') return false;
  const auto last = static_cast<unsigned char>(sequence[2]);
  if (sequence[1] == '\x80') return last == 0x8E || last == 0x8F || (last >= 0xA8 && last <= 0xAE);
  return sequence[1] == '\x81' && last >= 0xA6 && last <= 0xA9;
}

// C1 controls (U+0080 to U+009F) are as able to move a terminal's cursor as the ASCII ones.
bool IsControl(std::string_view sequence) {
  const auto lead = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return lead < 0x20 || lead == 0x7F;
  if (sequence.size() == 2 && lead == 0xC2) return static_cast<unsigned char>(sequence[1]) < 0xA0;
  return TurnsText(sequence);
}

// The sequence at the start of `text`, as it is shown, and its length in `text`.
struct Shown {
  std::string piece;
  std::size_t length;
};

Shown ShowNext(std::string_view text) {
  const std::size_t valid = SequenceLength(text, 0);
  const std::string_view sequence = text.substr(0, std::max<std::size_t>(valid, 1));
  if (valid > 0 && !IsControl(sequence)) return {std::string(sequence), sequence.size()};
  std::string piece;
  for (const char c : sequence) {
    piece += c == '\n'   ? "\\n"
             : c == '\t' ? "\\t"
                         : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return {std::move(piece), sequence.size()};
}

}  // namespace

std::string_view ErrorName(ErrorCode code) { return Row(code).name; }

int ExitStatus(ErrorCode code) { return Row(code).exit_status; }

std::string Printable(std::string_view text, std::size_t max_bytes) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const auto [piece, length] = ShowNext(text.substr(at));
    if (out.size() + piece.size() > max_bytes) {
      while (out.size() + 3 > max_bytes && !out.empty()) {
        do {
          const bool tail = (static_cast<unsigned char>(out.back()) & 0xC0) == 0x80;
          out.pop_back();
          if (!tail) break;
        } while (!out.empty());
      }
      return out + "...";
    }
    out += piece;
    at += length;
  }
  return out;
}

std::string PrintableLines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto [piece, length] = ShowNext(text);
    out += text[0] == '\n' ? "\n" : piece;
    text.remove_prefix(length);
  }
  return out;
}

std::string ErrorLine(ErrorCode code, std::string_view message) {
  const std::string head = fmt::format("spillway: error[{}]: ", ErrorName(code));
  return head + Printable(message, kMaxLineBytes - head.size());
}

void CheckFailed(const char* condition, const char* file, int line) {
  // fmt::print is avoided: it throws when the stream is closed or full.
  const std::string text =
      fmt::format("{} does not hold ({}:{}); please report it", condition, file, line);
  std::fprintf(stderr, "%s\n", ErrorLine(ErrorCode::kInternal, text).c_str());
  std::_Exit(ExitStatus(ErrorCode::kInternal));
}

}  // namespace spillway
