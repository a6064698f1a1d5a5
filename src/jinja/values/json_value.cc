#include "src/jinja/values/json_value.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/jinja/values/fault.h"

namespace spillway::jinja {
namespace {

using nlohmann::json;

class Builder : public nlohmann::json_sax<json> {
 public:
  Value Take() { return std::move(document_); }

  bool null() override { return Add({}); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(int64_t{value}); }
  bool number_unsigned(number_unsigned_t value) override { return Add(Integer{value}); }
  // Integers of over 64 bits come here too.
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") != string_t::npos) return Add(value);
    constexpr std::size_t kMaxDigits = 37;
    if (text.size() > kMaxDigits) throw Fault("a number has too many digits");
    const bool negative = text.front() == '-';
    Integer integer = 0;
    for (const char digit : text) {
      if (digit != '-') integer = integer * 10 + (digit - '0');
    }
    return Add(negative ? -integer : integer);
  }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override {
    open_.push_back({MakeShared<Dict>(), {}, {}});
    return true;
  }
  bool start_array(std::size_t) override {
    open_.push_back({nullptr, {}, {}});
    return true;
  }
  bool end_object() override {
    DictPtr dict = std::move(open_.back().dict);
    open_.pop_back();
    return Add(std::move(dict));
  }
  bool end_array() override {
    Values items = std::move(open_.back().items);
    open_.pop_back();
    return Add(MakeList(std::move(items)));
  }
  bool key(string_t& name) override {
    open_.back().key = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  struct Frame {
    std::shared_ptr<Dict> dict;  // null: an array
    Values items;
    std::string key;
  };

  bool Add(Value value) {
    if (open_.empty()) {
      document_ = std::move(value);
    } else if (Frame& frame = open_.back(); frame.dict != nullptr) {
      frame.dict->Set(Value(std::move(frame.key)), std::move(value));
    } else {
      frame.items.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Frame> open_;
  Value document_;
};

}  // namespace

Value ValueFromJson(std::string_view text) {
  Builder builder;
  SPILLWAY_CHECK(json::sax_parse(text, &builder));
  return builder.Take();
}

}  // namespace spillway::jinja
