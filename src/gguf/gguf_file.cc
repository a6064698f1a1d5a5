#include "src/gguf/gguf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <fstream>
#include <limits>
#include <string_view>
#include <utility>

#include "spillway/error.h"
#include "spillway/round.h"
#include "src/base/part_number.h"
#include "src/checkpoint/file_kind.h"
#include "src/checkpoint/model_folder.h"
#include "src/gguf/gguf_head.h"

namespace spillway {
namespace {

static_assert(std::endian::native == std::endian::little, "fields are used as they are on disk");

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kMaxDimensions = 4;
constexpr int64_t kLeastTensorBytes = 8 + 4 + 8 + 4 + 8;  // name, rank, a dimension, type, offset
constexpr int64_t kLeastValueBytes = 8 + 4 + 1;           // name, type, value
constexpr int64_t kUsualAlignment = 32;

void CheckStart(const ModelFile& file, GgufHead& head) {
  if (file.ReadStart(kMagic.size()) != kMagic)
    throw Error(ErrorCode::kModelMalformed, NotExpectedKind(file, "a GGUF file"));
  head.Scalar<uint32_t>();
  const auto version = head.Scalar<uint32_t>();
  if (version == 2 || version == 3) return;
  const bool swapped = version == __builtin_bswap32(2) || version == __builtin_bswap32(3);
  throw Error(
      ErrorCode::kModelUnsupported,
      fmt::format("{}: is {}; versions 2 and 3 are read, little-endian; convert the model "
                  "again",
                  Printable(file.name()),
                  swapped ? std::string("big-endian") : fmt::format("GGUF version {}", version)));
}

int64_t ReadDimension(GgufHead& head, const std::string& name) {
  const auto size = head.Scalar<uint64_t>();
  if (size == 0 || size > std::numeric_limits<int32_t>::max())
    head.Refuse(fmt::format("tensor \"{}\" has a dimension of {}", Printable(name), size));
  return static_cast<int64_t>(size);
}

// Reads an entry of the table; its offset counts from the end of the head, still.
GgufTensor ReadTensor(GgufHead& head) {
  GgufTensor tensor;
  tensor.name = head.Text();
  const auto rank = head.Scalar<uint32_t>();
  if (rank == 0 || rank > kMaxDimensions)
    head.Refuse(fmt::format("tensor \"{}\" has {} dimensions", Printable(tensor.name), rank));
  for (uint32_t i = 0; i < rank; ++i) tensor.shape.push_back(ReadDimension(head, tensor.name));
  std::ranges::reverse(tensor.shape);
  tensor.type = head.Scalar<uint32_t>();
  const auto offset = head.Scalar<uint64_t>();
  if (offset > static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / 2))
    head.Refuse(fmt::format("tensor \"{}\" begins at byte {}", Printable(tensor.name), offset));
  tensor.offset = static_cast<int64_t>(offset);
  return tensor;
}

int64_t Alignment(const GgufMetadata& metadata) {
  const int64_t alignment = metadata.FindCount("general.alignment").value_or(kUsualAlignment);
  if (alignment <= 0 || !std::has_single_bit(static_cast<uint64_t>(alignment)))
    metadata.Refuse(fmt::format("\"general.alignment\" is {}, no power of two", alignment));
  return alignment;
}

ModelFile OpenFile(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.parent_path();
  return ModelFolder(folder.empty() ? "." : folder).Open(path.filename());
}

bool HasEnding(const std::filesystem::path& path) {
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending == ".gguf";
}

// A file of any name, as Ollama keeps models.
bool BeginsAsOne(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  std::array<char, kMagic.size()> start{};
  std::ifstream(path, std::ios::binary).read(start.data(), start.size());
  return std::string_view(start.data(), start.size()) == kMagic;
}

// A file that a model of text is read with, but is not given by: a part behind the first, or what
// llama.cpp turns images into rows with.
bool IsBesideModel(const std::filesystem::path& path) {
  const std::optional<NumberedName> part = PartNumberOf(path);
  return path.filename().string().starts_with("mmproj") || (part && part->number != 1);
}

// Names of the models in a folder, sorted.
std::vector<std::string> ModelsIn(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const std::string& name : ModelFolder(folder).Files())
    if (HasEnding(name) && !IsBesideModel(name)) names.push_back(name);
  return names;
}

}  // namespace

std::optional<std::filesystem::path> FindGguf(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  if (!is_folder && (HasEnding(path) || BeginsAsOne(path))) return path;
  if (!is_folder || std::filesystem::exists(path / "config.json", ignored)) return std::nullopt;
  const std::vector<std::string> names = ModelsIn(path);
  if (names.empty()) return std::nullopt;
  if (names.size() == 1) return path / names.front();
  throw Error(ErrorCode::kModelMissing,
              fmt::format("{}: holds {} GGUF files ({}, {}{}); give the path of one of them",
                          Printable(path.string(), 100), names.size(), Printable(names[0], 60),
                          Printable(names[1], 60), names.size() > 2 ? ", ..." : ""));
}

GgufFile ReadGguf(ModelFile file) {
  GgufHead head(file);
  CheckStart(file, head);
  const std::size_t num_tensors = head.Count(kLeastTensorBytes);
  const std::size_t num_values = head.Count(kLeastValueBytes);
  GgufMetadata metadata(file.name());
  for (std::size_t i = 0; i < num_values; ++i) {
    std::string name = head.Text();
    if (!metadata.Add(name, head.Value()))
      head.Refuse(fmt::format("\"{}\" is there twice", Printable(name)));
  }
  std::vector<GgufTensor> tensors;
  for (std::size_t i = 0; i < num_tensors; ++i) tensors.push_back(ReadTensor(head));
  const int64_t begin = RoundUp(head.position(), Alignment(metadata));
  for (GgufTensor& tensor : tensors) tensor.offset += begin;
  return {std::move(file), std::move(metadata), std::move(tensors), head.position()};
}

GgufFile ReadGgufFile(const std::filesystem::path& path) { return ReadGguf(OpenFile(path)); }

}  // namespace spillway
