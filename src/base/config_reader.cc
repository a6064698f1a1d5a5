#include "src/base/config_reader.h"

#include <algorithm>
#include <utility>

#include "spillway/error.h"

namespace spillway {

JsonOrigin ConfigOrigin(std::string name) {
  return {.name = std::move(name),
          .code = ErrorCode::kModelInconsistent,
          .remedy = "check that the file belongs to this model",
          .wording = JsonWording::kKey,
          .null_is_absent = true};
}

JsonNode ConfigRoot(const nlohmann::json& document, const JsonOrigin& origin) {
  const JsonNode root(document, origin);
  if (document.is_object()) return root;
  root.Refuse(ErrorCode::kModelMalformed, "not a JSON object", origin.remedy);
}

std::vector<int64_t> DistinctIntegers(const JsonNode& node, IntegerRange range) {
  if (!node.value().is_array()) return {node.Integer(range)};
  std::vector<int64_t> numbers;
  for (const JsonNode& item : node.Items()) {
    const int64_t number = item.Integer(range);
    if (std::ranges::find(numbers, number) == numbers.end()) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace spillway
