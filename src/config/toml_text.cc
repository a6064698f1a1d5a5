#include "src/config/toml_text.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "spillway/error.h"

namespace spillway {

std::string ReadTomlText(const std::string& path, std::string_view flag) {
  constexpr std::streamoff kMaxBytes = 1 << 20;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in || !std::filesystem::is_regular_file(path) || in.tellg() > kMaxBytes) {
    throw Error(ErrorCode::kFlag, fmt::format("{} {}: not a readable TOML file of at most 1 MiB",
                                              flag, Printable(path)));
  }
  in.seekg(0);
  std::stringstream text;
  text << in.rdbuf();
  std::string read = text.str();
  if (read.find('\0') != std::string::npos)
    throw Error(ErrorCode::kFlag, fmt::format("{} {}: holds a NUL byte, which no TOML file has",
                                              flag, Printable(path)));
  return read;
}

std::optional<std::string> TomlScalar(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* real = node.as_floating_point()) return fmt::format("{}", real->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  return std::nullopt;
}

}  // namespace spillway
