#include "src/checkpoint/file_kind.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr std::string_view kWebPage = "a web page (HTML or XML); download the file itself";

constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kKinds = {{
    {"version https://git-lfs", "a git-LFS pointer; run git lfs pull in the model folder"},
    {"<!DOCTYPE", kWebPage},
    {"<!doctype", kWebPage},
    {"<html", kWebPage},
    {"<HTML", kWebPage},
    {"<?xml", kWebPage},
    {"PK\x03\x04", "a zip archive; name a PyTorch file pytorch_model.bin"},
    {"\x93NUMPY", "a numpy array; put it into a numpy folder under its tensor's name"},
    {"GGUF", "a GGUF file; name it FILE.gguf and give --model that"},
    {"\x1f\x8b", "gzip data; unpack it first"},
    {"{\"", "JSON text; download the weights themselves"},
}};

}  // namespace

std::string_view ForeignKind(std::string_view start) {
  while (!start.empty() &&
         (start.front() == '\n' || start.front() == '\r' || start.front() == ' ')) {
    start.remove_prefix(1);
  }
  for (const auto& [magic, kind] : kKinds) {
    if (start.starts_with(magic)) return kind;
  }
  return {};
}

std::string NotExpectedKind(const ModelFile& file, std::string_view expected) {
  const std::string start = file.ReadStart(64);
  const std::string_view kind = ForeignKind(start);
  return fmt::format("{}: not {}, but {}", Printable(file.name()), expected,
                     kind.empty() ? "something unknown; download it again" : kind);
}

}  // namespace spillway
