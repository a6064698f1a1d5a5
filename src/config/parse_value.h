// Flag values from text, strictly: no sign, space or letter that the whole value does not account
// for. Thread rule: pure functions. Each throws Error kFlag that names the flag and the value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spillway {

int64_t ParseInteger(std::string_view flag, std::string_view text, int64_t min, int64_t max);
double ParseReal(std::string_view flag, std::string_view text, double min, double max);

// "16GiB", "16GB", "512MiB", "4096": bytes.
int64_t ParseBytes(std::string_view flag, std::string_view text);

// "true", "false", "1", "0", "yes", "no", "on", "off".
bool ParseBool(std::string_view flag, std::string_view text);

}  // namespace spillway
