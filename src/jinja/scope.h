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
  std::map<std::string, Value, std::less<>> names;

  // Null: no scope from here on out has it.
  const Value* Find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
      if (const auto found = scope->names.find(name); found != scope->names.end())
        return &found->second;
    }
    return nullptr;
  }
};

}  // namespace spillway::jinja
