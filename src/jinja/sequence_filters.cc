#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "src/jinja/filters.h"
#include "src/jinja/values/fault.h"
#include "src/jinja/values/operators.h"
#include "src/jinja/values/print.h"
#include "src/jinja/values/python_text.h"
#include "src/jinja/values/text_builder.h"

namespace spillway::jinja {
namespace {

Value Generator(Values items) { return MakeSequence(SequenceKind::kGenerator, std::move(items)); }

// "a.b.0": an item of an item of an item. `fallback`, where it is not null, stands for each of them
// that is undefined.
Value AtPath(const Value& item, const Value& path, const Value* fallback = nullptr) {
  const std::string* text = path.AsText();
  if (text == nullptr && !path.AsInteger()) throw Fault("an attribute's name must be a text");
  const Shown shown(path);
  const Parts parts = SplitAt(shown.text(), ".", -1);
  Value value = item;
  for (const std::string_view part : parts) {
    Spend(1);
    const bool is_number = !part.empty() && part.size() < 9 &&
                           part.find_first_not_of("0123456789") == std::string::npos;
    value = ItemOf(value, is_number ? Value(std::stoi(std::string(part))) : Value(part));
    if (fallback != nullptr && !fallback->Is<None>() && value.Is<Undefined>()) value = *fallback;
  }
  return value;
}

// Key that sorting and comparing looks at: the item or its attribute, in lower case where that does
// not count.
struct SortKey {
  const Value* attribute = nullptr;
  bool case_sensitive = false;

  Value Of(const Value& item) const {
    Value key = attribute == nullptr || attribute->Is<None>() ? item : AtPath(item, *attribute);
    if (!case_sensitive && key.AsText()) return Lower(*key.AsText());
    return key;
  }
};

struct Keyed {
  Value key;
  Value item;
};

using KeyedItems = std::vector<Keyed, CountingAllocator<Keyed>>;

void SortKeyed(KeyedItems& keyed, bool reverse) {
  CheckRoom(static_cast<double>(keyed.size()) * sizeof(Keyed));  // for merging
  // Python keeps the order of equal ones in reverse too.
  std::ranges::stable_sort(keyed, [&](const Keyed& a, const Keyed& b) {
    return reverse ? Less(b.key, a.key) : Less(a.key, b.key);
  });
}

Values Sorted(Values items, const SortKey& key, bool reverse) {
  KeyedItems keyed;
  for (Value& item : items) keyed.push_back({key.Of(item), std::move(item)});
  SortKeyed(keyed, reverse);
  Values sorted;
  for (Keyed& entry : keyed) sorted.push_back(std::move(entry.item));
  return sorted;
}

Value LengthFilter(const FilterCall& call) {
  call.Bind({});
  return LengthOf(call.value);
}

Value ListFilter(const FilterCall& call) {
  call.Bind({});
  return MakeList(ItemsOf(call.value));
}

Value FirstFilter(const FilterCall& call) {
  call.Bind({});
  Values items = ItemsOf(call.value);
  return items.empty() ? MakeUndefined("No first item, sequence was empty.") : items.front();
}

Value LastFilter(const FilterCall& call) {
  call.Bind({});
  if (const Sequence* sequence = call.value.AsSequence();
      sequence != nullptr && sequence->kind == SequenceKind::kGenerator)
    throw Fault("'generator' object is not reversible");
  Values items = ItemsOf(call.value);
  return items.empty() ? MakeUndefined("No last item, sequence was empty.") : items.back();
}

Value JoinFilter(const FilterCall& call) {
  const BoundArguments bound = call.Bind({"d", "attribute"});
  const std::string between = bound.Has(0) ? Str(bound.At(0)) : "";
  const Value* attribute = bound.Find(1);
  TextBuilder out;
  bool first = true;
  for (const Value& item : ItemsOf(call.value)) {
    if (!first) out.Add(between);
    first = false;
    const bool is_whole = attribute == nullptr || attribute->Is<None>();
    out.Add(Shown(is_whole ? item : AtPath(item, *attribute)).text());
  }
  return out.Take();
}

Value ReverseFilter(const FilterCall& call) {
  call.Bind({});
  Values items = ItemsOf(call.value);
  std::ranges::reverse(items);
  if (!call.value.Is<Text>()) return Generator(std::move(items));
  TextBuilder out;
  for (const Value& item : items) out.Add(*item.AsText());
  return out.Take();
}

Value SortFilter(const FilterCall& call) {
  const BoundArguments bound = call.Bind({"reverse", "case_sensitive", "attribute"});
  const SortKey key = {bound.Find(2), bound.Flag(1, false)};
  return MakeList(Sorted(ItemsOf(call.value), key, bound.Flag(0, false)));
}

Value DictSortFilter(const FilterCall& call) {
  const BoundArguments bound = call.Bind({"case_sensitive", "by", "reverse"});
  const std::string by = bound.TextOr(1, "key");
  if (by != "key" && by != "value") throw Fault("dictsort: 'by' must be key or value");
  const Dict* dict = call.value.AsDict();
  RefuseUndefined(call.value);
  if (dict == nullptr)
    throw Fault(fmt::format("dictsort: '{}' has no items", TypeName(call.value)));
  const SortKey key = {nullptr, bound.Flag(0, false)};
  KeyedItems keyed;
  for (const auto& [name, value] : dict->members)
    keyed.push_back({key.Of(by == "key" ? name : value), MakeTuple({name, value})});
  SortKeyed(keyed, bound.Flag(2, false));
  Values items;
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return MakeList(std::move(items));
}

Value UniqueFilter(const FilterCall& call) {
  const BoundArguments bound = call.Bind({"case_sensitive", "attribute"});
  const SortKey key = {bound.Find(1), bound.Flag(0, false)};
  Dict seen;
  Values items;
  for (const Value& item : ItemsOf(call.value)) {
    const Value looked_at = key.Of(item);
    if (seen.Find(looked_at) != nullptr) continue;
    seen.Set(looked_at, true);
    items.push_back(item);
  }
  return Generator(std::move(items));
}

// min and max.
Value ExtremeFilter(const FilterCall& call) {
  const BoundArguments bound = call.Bind({"case_sensitive", "attribute"});
  const SortKey key = {bound.Find(1), bound.Flag(0, false)};
  const Values items = ItemsOf(call.value);
  if (items.empty()) return MakeUndefined("No aggregated item, sequence was empty.");
  Value best = items.front();
  for (const Value& item : items) {
    const bool better =
        call.name == "min" ? Less(key.Of(item), key.Of(best)) : Less(key.Of(best), key.Of(item));
    if (better) best = item;
  }
  return best;
}

Value SumFilter(const FilterCall& call) {
  const BoundArguments bound = call.Bind({"attribute", "start"});
  const Value* attribute = bound.Find(0);
  Value total = bound.Has(1) ? bound.At(1) : Value(0);
  for (const Value& item : ItemsOf(call.value)) {
    total = BinaryOperation(
        "+", total,
        attribute == nullptr || attribute->Is<None>() ? item : AtPath(item, *attribute));
  }
  return total;
}

Value ItemsFilter(const FilterCall& call) {
  call.Bind({});
  if (call.value.Is<Undefined>()) return Generator({});
  const Dict* dict = call.value.AsDict();
  if (dict == nullptr) throw Fault("Can only get item pairs from a mapping.");
  Values items;
  for (const auto& [key, value] : dict->members) items.push_back(MakeTuple({key, value}));
  return Generator(std::move(items));
}

// The rest of a call's arguments, behind the first `count`.
Arguments Behind(const Arguments& arguments, std::size_t count) {
  Arguments rest = arguments;
  rest.given.erase(rest.given.begin(), rest.given.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

const std::string& NameAt(const FilterCall& call, std::size_t place) {
  const std::string* name = call.arguments.given[place].AsText();
  if (name == nullptr) throw Fault(fmt::format("{}: a name must be a text", call.name));
  return *name;
}

// map(attribute="x", default=y), or map("filter", arguments...).
Value MapFilter(const FilterCall& call) {
  Values items = ItemsOf(call.value);
  Spend(items.size());
  if (!call.arguments.given.empty()) {
    const std::string& name = NameAt(call, 0);
    const Arguments rest = Behind(call.arguments, 1);
    for (Value& item : items) item = call.runtime.ApplyFilter(name, item, rest);
    return Generator(std::move(items));
  }
  const BoundArguments bound = call.Bind({"attribute", "default"});
  for (Value& item : items) item = AtPath(item, bound.At(0), bound.Find(1));
  return Generator(std::move(items));
}

// select, reject, selectattr, rejectattr: which items stay.
Value SelectFilter(const FilterCall& call) {
  const bool by_attribute = call.name.ends_with("attr");
  const bool wanted = call.name.starts_with("select");
  const Values& given = call.arguments.given;
  const std::size_t test_place = by_attribute ? 1 : 0;
  if (given.size() < test_place) throw Fault(fmt::format("{} needs an attribute", call.name));
  const bool has_test = given.size() > test_place;
  const std::string name = has_test ? NameAt(call, test_place) : "";
  const Arguments rest = has_test ? Behind(call.arguments, test_place + 1) : Arguments();
  const Values items = ItemsOf(call.value);
  Spend(items.size());
  Values kept;
  for (const Value& item : items) {
    const Value looked_at = by_attribute ? AtPath(item, given[0]) : item;
    const bool fits = has_test ? call.runtime.ApplyTest(name, looked_at, rest) : looked_at.IsTrue();
    if (fits == wanted) kept.push_back(item);
  }
  return Generator(std::move(kept));
}

// batch(count, fill) and slice(count, fill) of items.
Value BatchFilter(const FilterCall& call) {
  const BoundArguments bound = call.Bind({"linecount", "fill_with"});
  const long count = bound.Int(0, 0);
  if (count < 1) throw Fault("batch: 'linecount' must be at least 1");
  Values batches;
  Values batch;
  for (const Value& item : ItemsOf(call.value)) {
    if (std::ssize(batch) == count) batches.push_back(MakeList(std::exchange(batch, {})));
    batch.push_back(item);
  }
  const bool fills = bound.Has(1) && !bound.At(1).Is<None>();
  if (fills && !batch.empty()) {
    CheckRoom(static_cast<double>(count) * sizeof(Value));
    while (std::ssize(batch) < count) batch.push_back(bound.At(1));
  }
  if (!batch.empty()) batches.push_back(MakeList(std::move(batch)));
  return Generator(std::move(batches));
}

struct Named {
  std::string_view name;
  FilterFunction function;
};

constexpr std::array kFilters = {
    Named{"batch", BatchFilter},       Named{"count", LengthFilter},
    Named{"dictsort", DictSortFilter}, Named{"first", FirstFilter},
    Named{"items", ItemsFilter},       Named{"join", JoinFilter},
    Named{"last", LastFilter},         Named{"length", LengthFilter},
    Named{"list", ListFilter},         Named{"map", MapFilter},
    Named{"max", ExtremeFilter},       Named{"min", ExtremeFilter},
    Named{"reject", SelectFilter},     Named{"rejectattr", SelectFilter},
    Named{"reverse", ReverseFilter},   Named{"select", SelectFilter},
    Named{"selectattr", SelectFilter}, Named{"sort", SortFilter},
    Named{"sum", SumFilter},           Named{"unique", UniqueFilter},
};

}  // namespace

FilterFunction FindSequenceFilter(std::string_view name) {
  const auto found = std::ranges::find(kFilters, name, &Named::name);
  return found == kFilters.end() ? nullptr : found->function;
}

}  // namespace spillway::jinja
