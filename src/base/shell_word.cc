#include "src/base/shell_word.h"

namespace spillway {

std::string ShellWord(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string ShellPath(const std::filesystem::path& path) {
  const std::string& name = path.native();
  return ShellWord(name.starts_with('-') ? "./" + name : name);
}

}  // namespace spillway
