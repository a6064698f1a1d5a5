#include "tests/fuzz/fuzz_case.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>

#include "spillway/error.h"

namespace spillway::fuzz {

Folder::Folder() {
  std::string name = (std::filesystem::temp_directory_path() / "spillway-fuzz-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    throw std::system_error(errno, std::generic_category(), name);
  path_ = name;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path Folder::Write(std::string_view name, std::string_view bytes) const {
  std::ofstream file(path_ / name, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file.good()) throw std::runtime_error("the fuzz target's folder cannot be written");
  return path_ / name;
}

void Folder::Remove(std::string_view name) const { std::filesystem::remove(path_ / name); }

std::string_view NextPart(std::string_view& bytes) {
  const std::size_t end = bytes.find('\0');
  const std::string_view part = bytes.substr(0, end);
  bytes = end == std::string_view::npos ? std::string_view() : bytes.substr(end + 1);
  return part;
}

}  // namespace spillway::fuzz

// A target's parser at one input, as libFuzzer calls it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  using spillway::Error;
  try {
    spillway::fuzz::Take({reinterpret_cast<const char*>(data), size});
  } catch (const Error& error) {
    if (error.code() == spillway::ErrorCode::kInternal) std::abort();
  }
  return 0;
}

// A failed check ends the program by _Exit, which libFuzzer does not see: the linker sends it here
// (--wrap).
extern "C" [[noreturn]] void __wrap__Exit(int /*status*/) { std::abort(); }
