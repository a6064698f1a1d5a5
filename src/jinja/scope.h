// Scope: the names that a part of a template sets. Thread rule: one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "src/jinja/values/value.h"

namespace spillway::jinja {

struct Scope {
  std::shared_ptr<Scope> parent;  // null: the template's own
  std::map<std::string, Value, std::less<>, CountingAllocator<std::pair<const std::string, Value>>>
      names;

  // Null: no scope from here on out has it.
  const Value* Find(std::string_view name) const {
    std::size_t passed = 0;
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get(), ++passed) {
      if (const auto found = scope->names.find(name); found != scope->names.end())
        return Paid(passed, &found->second);
    }
    return Paid(passed, nullptr);
  }

 private:
  static const Value* Paid(std::size_t passed, const Value* found) {
    Spend(passed / 4);
    return found;
  }
};

}  // namespace spillway::jinja
