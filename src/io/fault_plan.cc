// The text form of a FaultPlan.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

#include "spillway/error.h"
#include "src/io/fault_backend.h"

namespace spillway {
namespace {

constexpr std::array<std::pair<std::string_view, FaultKind>, 7> kKinds = {{
    {"error", FaultKind::kError},
    {"short", FaultKind::kShort},
    {"flip", FaultKind::kFlip},
    {"zero", FaultKind::kZero},
    {"lost", FaultKind::kLost},
    {"misdirected", FaultKind::kMisdirected},
    {"delay", FaultKind::kDelay},
}};

[[noreturn]] void ThrowBad(std::string_view item) {
  throw Error(ErrorCode::kFlag,
              fmt::format("fault \"{}\" is not of the form read|write:error|short|flip|zero|lost|"
                          "misdirected|delay[=value][@first][/period], or shuffle=seed",
                          Printable(item)));
}

// The text before the first `mark`; cuts it and the mark off `rest`.
std::string_view CutAt(std::string_view& rest, char mark) {
  const std::size_t at = rest.find(mark);
  const std::string_view head = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view() : rest.substr(at + 1);
  return head;
}

int64_t Number(std::string_view text, std::string_view item) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) ThrowBad(item);
  return value;
}

int64_t OptionalNumber(std::string_view text, std::string_view item) {
  return text.empty() ? 0 : Number(text, item);
}

Fault ParseFault(std::string_view item) {
  std::string_view period = item;
  std::string_view first = CutAt(period, '/');
  std::string_view value = CutAt(first, '@');
  std::string_view kind = CutAt(value, '=');
  const std::string_view op = CutAt(kind, ':');
  Fault fault;
  if (op != "read" && op != "write") ThrowBad(item);
  fault.op = op == "read" ? DiskOp::kRead : DiskOp::kWrite;
  const auto* known = kKinds.begin();
  while (known != kKinds.end() && known->first != kind) ++known;
  if (known == kKinds.end()) ThrowBad(item);
  fault.kind = known->second;
  fault.value = OptionalNumber(value, item);
  fault.first = OptionalNumber(first, item);
  fault.period = OptionalNumber(period, item);
  return fault;
}

}  // namespace

FaultPlan ParseFaultPlan(std::string_view text) {
  constexpr std::string_view kShuffle = "shuffle=";
  FaultPlan plan;
  while (!text.empty()) {
    const std::string_view item = CutAt(text, ',');
    if (item.starts_with(kShuffle)) {
      plan.shuffle = true;
      plan.seed = static_cast<uint64_t>(Number(item.substr(kShuffle.size()), item));
    } else {
      plan.faults.push_back(ParseFault(item));
    }
  }
  return plan;
}

}  // namespace spillway
