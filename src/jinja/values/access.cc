#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "src/jinja/values/fault.h"
#include "src/jinja/values/loop.h"
#include "src/jinja/values/methods.h"
#include "src/jinja/values/operators.h"
#include "src/jinja/values/print.h"
#include "src/jinja/values/python_text.h"
#include "src/jinja/values/text_builder.h"
#include "src/unicode/utf8.h"

namespace spillway::jinja {
namespace {

Value NoAttribute(const Value& object, const std::string& name) {
  return MakeUndefined(fmt::format("'{}' has no attribute '{}'", ObjectName(object), name));
}

Value NoItem(const Value& container, const Value& key) {
  if (const std::string* name = key.AsText()) return NoAttribute(container, *name);
  return MakeUndefined(fmt::format("{} has no element {}", ObjectName(container), Repr(key)));
}

bool IsIndexable(const Sequence* sequence) {
  return sequence != nullptr &&
         (sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple ||
          sequence->kind == SequenceKind::kRange);
}

// Place of `index`, which counts from the end where it is negative; nullopt: outside.
std::optional<std::size_t> PlaceOf(Integer index, std::size_t size) {
  const Integer place = index < 0 ? index + static_cast<Integer>(size) : index;
  if (place < 0 || place >= static_cast<Integer>(size)) return std::nullopt;
  return static_cast<std::size_t>(place);
}

// Text from the code point at `place` on.
std::string_view TextFrom(std::string_view text, std::size_t place) {
  SpendOnText(4 * place);
  std::size_t at = 0;
  for (; place > 0; --place) at += CodePointAt(text, at).bytes;
  return text.substr(at);
}

std::string_view CodePointText(std::string_view text, std::size_t place) {
  const std::string_view rest = TextFrom(text, place);
  return rest.substr(0, CodePointAt(rest, 0).bytes);
}

// Item by index or key; nullopt: there is none.
std::optional<Value> FindItem(const Value& container, const Value& key) {
  if (const Dict* dict = container.AsDict()) {
    const Sequence* list = key.AsSequence();
    if (key.AsDict() || (list && list->kind != SequenceKind::kTuple)) return std::nullopt;
    const Value* found = dict->Find(key);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  const auto index = key.AsInteger();
  if (!index) return std::nullopt;
  if (const std::string* text = container.AsText()) {
    const auto place = PlaceOf(*index, NumCodePoints(*text));
    if (place) return Value(CodePointText(*text, *place));
  }
  if (const Sequence* sequence = container.AsSequence(); IsIndexable(sequence)) {
    const auto place = PlaceOf(*index, sequence->items.size());
    if (place) return sequence->items[*place];
  }
  return std::nullopt;
}

std::optional<Value> FindAttribute(const Value& object, const std::string& name) {
  if (const auto* space = object.As<NamespacePtr>()) {
    const Value* found = (*space)->Find(name);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (const auto* loop = object.As<LoopPtr>()) return LoopAttribute(*loop, name);
  if (HasMethod(object, name)) return MakeMethod(object, name);
  if (const auto* callable = object.As<CallablePtr>();
      callable && (*callable)->kind == CallableKind::kMacro && name == "name")
    return Value((*callable)->name);
  return std::nullopt;
}

// First and last place of a slice, as Python clamps them.
struct Walk {
  Integer start;
  Integer stop;
  Integer step;

  std::size_t NumSteps() const {
    const Integer way = step > 0 ? stop - start : start - stop;
    const Integer size = step > 0 ? step : -step;
    return way <= 0 ? 0 : static_cast<std::size_t>((way + size - 1) / size);
  }
};

Walk WalkOf(const SliceBounds& bounds, Integer size) {
  const Integer step = std::clamp<Integer>(bounds.step.value_or(1), -size - 1, size + 1);
  if (step == 0) throw Fault("slice step cannot be zero");
  const Integer low = step < 0 ? -1 : 0;
  const Integer high = step < 0 ? size - 1 : size;
  const auto clamped = [&](const std::optional<Integer>& bound, Integer missing) {
    if (!bound) return missing;
    return std::clamp<Integer>(*bound < 0 ? *bound + size : *bound, low, high);
  };
  return {clamped(bounds.start, step < 0 ? high : low), clamped(bounds.stop, step < 0 ? low : high),
          step};
}

template <typename Items>
Items Sliced(const Items& items, const SliceBounds& bounds) {
  const Walk walk = WalkOf(bounds, static_cast<Integer>(items.size()));
  Items out;
  out.reserve(walk.NumSteps());
  for (Integer at = walk.start; walk.step > 0 ? at < walk.stop : at > walk.stop; at += walk.step)
    out.push_back(items[static_cast<std::size_t>(at)]);
  return out;
}

Value StepsOfText(std::string_view text, const SliceBounds& bounds) {
  TextBuilder out;
  for (const std::string_view point : Sliced(CodePointTexts(text), bounds)) out.Add(point);
  return out.Take();
}

}  // namespace

Value ItemOf(const Value& container, const Value& key) {
  RefuseUndefined(container);
  if (std::optional<Value> item = FindItem(container, key)) return *std::move(item);
  if (const std::string* name = key.AsText()) {
    if (std::optional<Value> attribute = FindAttribute(container, *name))
      return *std::move(attribute);
  }
  return NoItem(container, key);
}

Value AttributeOf(const Value& object, const std::string& name) {
  RefuseUndefined(object);
  if (std::optional<Value> attribute = FindAttribute(object, name)) return *std::move(attribute);
  if (IsUnsafeMethod(object, name)) {
    return MakeUndefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, TypeName(object)));
  }
  if (std::optional<Value> item = FindItem(object, name)) return *std::move(item);
  return NoAttribute(object, name);
}

std::string_view SliceOfText(std::string_view text, const SliceBounds& bounds) {
  const Walk walk = WalkOf(bounds, static_cast<Integer>(NumCodePoints(text)));
  if (walk.NumSteps() == 0) return "";
  const std::string_view rest = TextFrom(text, static_cast<std::size_t>(walk.start));
  return rest.substr(0, rest.size() - TextFrom(rest, walk.NumSteps()).size());
}

Value SliceOf(const Value& container, const SliceBounds& bounds) {
  RefuseUndefined(container);
  if (const std::string* text = container.AsText()) {
    return bounds.step.value_or(1) == 1 ? SliceOfText(*text, bounds) : StepsOfText(*text, bounds);
  }
  const Sequence* sequence = container.AsSequence();
  if (IsIndexable(sequence)) return MakeSequence(sequence->kind, Sliced(sequence->items, bounds));
  throw Fault(fmt::format("'{}' object is not subscriptable", TypeName(container)));
}

}  // namespace spillway::jinja
