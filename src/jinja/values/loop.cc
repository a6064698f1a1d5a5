#include "src/jinja/values/loop.h"

#include "src/jinja/values/fault.h"
#include "src/jinja/values/operators.h"
#include "src/jinja/values/print.h"

namespace spillway::jinja {
namespace {

Value Neighbour(const Loop& loop, bool next) {
  if (next) {
    return loop.index + 1 < loop.items.size() ? loop.items[loop.index + 1]
                                              : MakeUndefined("there is no next item");
  }
  return loop.index > 0 ? loop.items[loop.index - 1] : MakeUndefined("there is no previous item");
}

Value LoopMethod(const LoopPtr& loop, const std::string& name) {
  auto method = MakeShared<Callable>();
  method->kind = CallableKind::kLoopMethod;
  method->name = name;
  method->receiver = loop;
  return CallablePtr(std::move(method));
}

}  // namespace

std::optional<Value> LoopAttribute(const LoopPtr& loop, const std::string& name) {
  const std::size_t left = loop->items.size() - loop->index;
  if (name == "index") return Value(loop->index + 1);
  if (name == "index0") return Value(loop->index);
  if (name == "revindex") return Value(left);
  if (name == "revindex0") return Value(left - 1);
  if (name == "first") return Value(loop->index == 0);
  if (name == "last") return Value(left == 1);
  if (name == "length") return Value(loop->items.size());
  if (name == "depth") return Value(1);  // it counts recursion only
  if (name == "depth0") return Value(0);
  if (name == "previtem") return Neighbour(*loop, false);
  if (name == "nextitem") return Neighbour(*loop, true);
  if (name == "cycle" || name == "changed") return LoopMethod(loop, name);
  return std::nullopt;
}

Value CallLoopMethod(Loop& loop, const std::string& name, const Arguments& arguments) {
  const Values& given = arguments.given;
  if (name == "cycle") {
    if (given.empty()) throw Fault("no items for cycling given");
    return given[loop.index % given.size()];
  }
  Value shown = Repr(MakeTuple(given));
  const bool changed = !loop.last_changed || !Equal(*loop.last_changed, shown);
  loop.last_changed = std::move(shown);
  return changed;
}

}  // namespace spillway::jinja
