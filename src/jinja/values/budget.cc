#include "src/jinja/values/budget.h"

#include <fmt/format.h>

#include <limits>

#include "src/jinja/values/fault.h"

namespace spillway::jinja {
namespace {

thread_local Budget* current = nullptr;

constexpr std::size_t kBytesPerUnit = 64;      // copied or filled
constexpr std::size_t kTextBytesPerUnit = 16;  // looked at, one code point after the other

}  // namespace

void Budget::Spend(std::size_t units) {
  if (units > units_ - spent_) {
    spent_ = units_;
    throw Fault("takes too long: it does more than any chat needs");
  }
  spent_ += units;
}

void Budget::Check(std::size_t bytes) const {
  if (held_ + bytes > bytes_)
    throw Fault(fmt::format("holds more than {} MiB at a time", bytes_ >> 20));
}

void Budget::Hold(std::size_t bytes) {
  Check(bytes);
  Spend(1 + bytes / kBytesPerUnit);
  held_ += bytes;
}

Budget* Budget::Current() { return current; }

Budget::Use::Use(Budget& budget) : outer_(std::exchange(current, &budget)) {}
Budget::Use::~Use() { current = outer_; }

void Spend(std::size_t units) {
  if (current != nullptr) current->Spend(units);
}

void CheckRoom(double bytes) {
  constexpr double kMost = static_cast<double>(std::numeric_limits<std::size_t>::max() / 4);
  if (current != nullptr) current->Check(static_cast<std::size_t>(bytes < kMost ? bytes : kMost));
}

void SpendOnText(std::size_t bytes) { Spend(1 + bytes / kTextBytesPerUnit); }

}  // namespace spillway::jinja
