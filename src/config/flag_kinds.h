// Flags of one kind each: what their values may be, and the member of Config that takes them.
// Plain functions; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/config/flags.h"
#include "src/config/parse_value.h"

namespace spillway {

using FlagSetter = std::function<void(Config&, const std::string&)>;

inline constexpr int64_t kMaxThreads = 1024;
inline constexpr int64_t kMaxRequests = 1 << 30;

Flag Value(std::string name, std::string placeholder, std::string help, FlagSetter set);

// The flags under a heading, but for those that have one.
std::vector<Flag> InGroup(const std::string& heading, std::vector<Flag> flags);

// A text that a member takes as it is: a name, a path.
template <typename T>
Flag Value(std::string name, std::string placeholder, std::string help, T Config::*member) {
  return Value(std::move(name), std::move(placeholder), std::move(help),
               [member](Config& config, const std::string& text) { config.*member = text; });
}

Flag Switch(std::string name, std::string help, void (*set)(Config&, bool));

// Switch that lands in a member: true where it is on.
template <typename T>
Flag Switch(std::string name, std::string help, T Config::*member) {
  FlagSetter setter = [name, member](Config& config, const std::string& text) {
    config.*member = ParseBool(name, text);
  };
  return {std::move(name), FlagKind::kSwitch, "", std::move(help), std::move(setter)};
}

// An integer that lands in a member of Config.
template <typename T>
Flag Integer(std::string name, std::string help, T Config::*member, int64_t min, int64_t max) {
  FlagSetter setter = [name, member, min, max](Config& config, const std::string& text) {
    const int64_t value = ParseInteger(name, text, min, max);
    if constexpr (std::is_integral_v<T>) {
      config.*member = static_cast<T>(value);
    } else {
      config.*member = value;
    }
  };
  return {std::move(name), FlagKind::kValue, "N", std::move(help), std::move(setter)};
}

// An integer that lands in a member of Config::sampling.
Flag Integer(std::string name, std::string help, int64_t Sampling::*member, int64_t min,
             int64_t max);

// A real number likewise, placeholder "X".
Flag Real(std::string name, std::string help, double Sampling::*member, double min, double max);

// A size: "4GiB", "1.5e9".
Flag Bytes(std::string name, std::string help, std::optional<int64_t> Config::*member);

// Bits of a stored number: 16, 8 or 4.
Flag Bits(std::string name, std::string help, std::optional<int> Config::*member);

std::vector<Flag> Joined(std::initializer_list<std::vector<Flag>> groups);

}  // namespace spillway
