// Guards of the interpreter: a level of nesting, and a scope inside the present one.
// Thread rule: one thread.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "src/jinja/interpreter.h"
#include "src/jinja/values/fault.h"

namespace spillway::jinja {

class Interpreter::Level {
 public:
  Level(int& depth, int limit) : depth_(depth) {
    if (depth_ >= limit) throw Fault(fmt::format("nests deeper than {} levels", limit));
    ++depth_;
  }
  ~Level() { --depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  int& depth_;
};

// The scope goes with the guard.
class Interpreter::InnerScope {
 public:
  explicit InnerScope(std::shared_ptr<Scope>& scope) : InnerScope(scope, scope) {}
  // Inside `parent`, wherever that is.
  InnerScope(std::shared_ptr<Scope>& scope, std::shared_ptr<Scope> parent)
      : scope_(scope), outer_(scope) {
    scope_ = MakeShared<Scope>();
    scope_->parent = std::move(parent);
  }
  ~InnerScope() { scope_ = outer_; }
  InnerScope(const InnerScope&) = delete;
  InnerScope& operator=(const InnerScope&) = delete;

 private:
  std::shared_ptr<Scope>& scope_;
  std::shared_ptr<Scope> outer_;
};

}  // namespace spillway::jinja
