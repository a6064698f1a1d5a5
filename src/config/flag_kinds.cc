#include "src/config/flag_kinds.h"

#include <fmt/format.h>

#include "policies/search/storage_choice.h"  // kStoredBits
#include "spillway/error.h"

namespace spillway {
namespace {

int ParseBits(std::string_view flag, const std::string& text) {
  for (const int bits : kStoredBits) {
    if (text == std::to_string(bits)) return bits;
  }
  throw Error(ErrorCode::kFlag, fmt::format("--{} {}: expected 16, 8 or 4", flag, Printable(text)));
}

}  // namespace

Flag Value(std::string name, std::string placeholder, std::string help, FlagSetter set) {
  return {std::move(name), FlagKind::kValue, std::move(placeholder), std::move(help),
          std::move(set)};
}

Flag Switch(std::string name, std::string help, void (*set)(Config&, bool)) {
  FlagSetter setter = [name, set](Config& config, const std::string& text) {
    set(config, ParseBool(name, text));
  };
  return {std::move(name), FlagKind::kSwitch, "", std::move(help), std::move(setter)};
}

Flag Integer(std::string name, std::string help, int64_t Sampling::*member, int64_t min,
             int64_t max) {
  FlagSetter setter = [name, member, min, max](Config& config, const std::string& text) {
    config.sampling.*member = ParseInteger(name, text, min, max);
  };
  return {std::move(name), FlagKind::kValue, "N", std::move(help), std::move(setter)};
}

Flag Real(std::string name, std::string help, double Sampling::*member, double min, double max) {
  FlagSetter setter = [name, member, min, max](Config& config, const std::string& text) {
    config.sampling.*member = ParseReal(name, text, min, max);
  };
  return {std::move(name), FlagKind::kValue, "X", std::move(help), std::move(setter)};
}

Flag Bytes(std::string name, std::string help, std::optional<int64_t> Config::*member) {
  FlagSetter setter = [name, member](Config& config, const std::string& text) {
    config.*member = ParseBytes(name, text);
  };
  return {std::move(name), FlagKind::kValue, "SIZE", std::move(help), std::move(setter)};
}

Flag Bits(std::string name, std::string help, std::optional<int> Config::*member) {
  FlagSetter setter = [name, member](Config& config, const std::string& text) {
    config.*member = ParseBits(name, text);
  };
  return {std::move(name), FlagKind::kValue, "16|8|4", std::move(help), std::move(setter)};
}

std::vector<Flag> InGroup(const std::string& heading, std::vector<Flag> flags) {
  for (Flag& flag : flags) {
    if (flag.group.empty()) flag.group = heading;
  }
  return flags;
}

std::vector<Flag> Joined(std::initializer_list<std::vector<Flag>> groups) {
  std::vector<Flag> flags;
  for (const std::vector<Flag>& group : groups) {
    flags.insert(flags.end(), group.begin(), group.end());
  }
  return flags;
}

}  // namespace spillway
