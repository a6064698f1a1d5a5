#include "src/checkpoint/bounded_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <vector>

#include "spillway/error.h"

namespace spillway {
namespace {

using Event = nlohmann::json::parse_event_t;

// Follows the parser's events. The parser itself keeps its state on the heap, so depth costs no
// stack.
class Guard {
 public:
  explicit Guard(std::string_view source) : source_(source) {}

  bool operator()(int depth, Event event, const nlohmann::json& value) {
    if (event == Event::object_start || event == Event::array_start) CheckDepth(depth);
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key) CheckKey(value.get_ref<const std::string&>());
    return true;
  }

 private:
  void CheckDepth(int depth) const {
    if (depth < kMaxJsonDepth) return;
    throw Error(ErrorCode::kModelMalformed,
                fmt::format("{}: JSON nested deeper than {}; download it again", Printable(source_),
                            kMaxJsonDepth));
  }

  void CheckKey(const std::string& key) {
    if (keys_.back().insert(key).second) return;
    throw Error(ErrorCode::kModelMalformed,
                fmt::format("{}: the key \"{}\" occurs twice; download it again",
                            Printable(source_), Printable(key)));
  }

  std::string_view source_;
  std::vector<std::unordered_set<std::string>> keys_;
};

}  // namespace

nlohmann::json ParseBoundedJson(std::string_view text, std::string_view source) {
  Guard guard(source);
  try {
    return nlohmann::json::parse(text.begin(), text.end(),
                                 [&guard](int depth, Event event, nlohmann::json& value) {
                                   return guard(depth, event, value);
                                 });
  } catch (const nlohmann::json::parse_error& error) {
    throw Error(
        ErrorCode::kModelMalformed,
        fmt::format("{}: not JSON (at byte {}); download it again", Printable(source), error.byte));
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kModelMalformed,
                fmt::format("{}: holds a number that is out of range; download it again",
                            Printable(source)));
  }
}

nlohmann::json ReadBoundedJson(const ModelFile& file, int64_t max_bytes) {
  if (file.size() > max_bytes) {
    throw Error(
        ErrorCode::kModelUnsupported,
        fmt::format("{}: has {} bytes, at most {} are read; check that it is the right file",
                    Printable(file.name()), file.size(), max_bytes));
  }
  return ParseBoundedJson(file.ReadStart(max_bytes), file.name());
}

}  // namespace spillway
