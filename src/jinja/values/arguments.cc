#include "src/jinja/values/arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/jinja/values/fault.h"
#include "src/jinja/values/operators.h"

namespace spillway::jinja {

BoundArguments::BoundArguments(std::string_view function, const Arguments& arguments,
                               std::initializer_list<std::string_view> names)
    : function_(function), names_(names), values_(names.size()) {
  if (arguments.given.size() > names.size()) {
    throw Fault(fmt::format("{} takes at most {} arguments, {} were given", function, names.size(),
                            arguments.given.size()));
  }
  std::ranges::copy(arguments.given, values_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end())
      throw Fault(fmt::format("{} got an unexpected keyword argument '{}'", function, name));
    std::optional<Value>& slot = values_[static_cast<std::size_t>(found - names_.begin())];
    if (slot) throw Fault(fmt::format("{} got '{}' twice", function, name));
    slot = value;
  }
}

const Value& BoundArguments::At(std::size_t place) const {
  if (!values_[place])
    throw Fault(fmt::format("{} needs an argument '{}'", function_, names_[place]));
  return *values_[place];
}

void BoundArguments::FailType(std::size_t place, std::string_view wanted) const {
  RefuseUndefined(*values_[place]);
  throw Fault(fmt::format("{}: '{}' must be {}, not {}", function_, names_[place], wanted,
                          TypeName(*values_[place])));
}

bool BoundArguments::Flag(std::size_t place, bool fallback) const {
  return values_[place] ? values_[place]->IsTrue() : fallback;
}

long BoundArguments::Int(std::size_t place, long fallback) const {
  if (!values_[place] || values_[place]->Is<None>()) return fallback;
  const auto integer = values_[place]->AsInteger();
  if (!integer) FailType(place, "an integer");
  constexpr Integer kMany = Integer{1} << 40;
  return static_cast<long>(std::clamp<Integer>(*integer, -kMany, kMany));
}

std::string BoundArguments::TextOr(std::size_t place, std::string fallback) const {
  return values_[place] ? TextAt(place) : std::move(fallback);
}

const std::string* BoundArguments::FindText(std::size_t place) const {
  if (!values_[place] || values_[place]->Is<None>()) return nullptr;
  return &TextAt(place);
}

const std::string& BoundArguments::TextAt(std::size_t place) const {
  const std::string* text = At(place).AsText();
  if (text == nullptr) FailType(place, "a text");
  return *text;
}

}  // namespace spillway::jinja
